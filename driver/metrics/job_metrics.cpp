#include "driver/metrics/job_metrics.h"

#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <utility>

#include "driver/metrics/host_metrics.h"
#include "driver/metrics/state_metrics.h"
#include "driver/metrics/worker_metrics.h"
#include "driver/metrics/world_metrics.h"

namespace hvd::driver {

struct JobMetrics::Groups {
  Groups(const JobIdentity& identity, const JobStart& start)
      : state(registry, identity, start),
        world(registry, start),
        workers(registry),
        hosts(registry),
        collectives(registry) {}

  prometheus::Registry registry;
  StateMetrics state;
  WorldMetrics world;
  WorkerMetrics workers;
  HostMetrics hosts;
  CollectiveMetrics collectives;
  JobState last_state = JobState::planned;
};

JobMetrics::JobMetrics(const JobIdentity& identity, const JobStart& start)
    : groups_(std::make_unique<Groups>(identity, start)) {}

JobMetrics::~JobMetrics() = default;

void JobMetrics::step(const Event& event, const std::vector<Action>& actions, const Job& job,
                      TimePoint now) {
  const JobStep step{event, actions, job, now};
  // When the job changes its state, workers may end that nobody names.
  const bool has_moved = std::exchange(groups_->last_state, job.state()) != job.state();
  const NamedByStep named = has_moved ? all_of(job) : named_by(step);
  groups_->state.on_step(step);
  groups_->world.on_step(step, named);
  groups_->workers.on_step(step, named);
  groups_->hosts.on_step(step, named);
}

void JobMetrics::look_at_work(const WorkWatch& work, const Job& job, TimePoint now) {
  groups_->collectives.look(job, work, now);
}

void JobMetrics::add_output(agent_link::Stream stream, std::size_t bytes) {
  groups_->workers.add_output(stream, bytes);
}

std::string JobMetrics::text(const Job& job, TimePoint now) {
  groups_->state.look(job, now);
  groups_->world.look(job);
  groups_->workers.look(job);
  groups_->hosts.look(job);
  return prometheus::TextSerializer().Serialize(groups_->registry.Collect());
}

}  // namespace hvd::driver
