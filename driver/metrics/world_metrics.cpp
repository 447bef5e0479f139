#include "driver/metrics/world_metrics.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <variant>

namespace hvd::driver {
namespace {

constexpr std::array<std::string_view, kWorldCauses> kCauseNames{
    "start", "worker_lost", "host_lost", "joined", "left", "replaced", "suspended"};

// In the order in which they follow each other.
constexpr std::array<std::string_view, kEntryParts> kEntryPartNames{"leave", "wait", "connect",
                                                                    "vote",  "sync", "step"};

bool voids_commits(const JobStep& step) {
  return std::any_of(step.actions.begin(), step.actions.end(), [](const Action& action) {
    return std::holds_alternative<action::VoidCommits>(action);
  });
}

void add_limit(prometheus::Registry& registry, const char* name, const char* help, int limit) {
  gauge_family(registry, name, help).Add({}).Set(limit);
}

}  // namespace

WorldMetrics::WorldMetrics(prometheus::Registry& registry, const JobStart& start)
    : formed_(counter_family(registry, "hvd_worlds_formed_total",
                             "Worlds that have taken force, by the reason of the change."),
              "cause", kCauseNames),
      change_time_(histogram_family(registry, "hvd_world_change_seconds",
                                    "Time from the loss or the proposal that asked for a world to "
                                    "the moment at which it took force, by the reason."),
                   "cause", kCauseNames, kChangeBuckets),
      replacement_time_(
          histogram_family(registry, "hvd_world_replacement_seconds",
                           "Time from a loss to a world that is as large as the one before it.")
              .Add({}, kChangeBuckets)),
      entry_time_(histogram_family(registry, "hvd_world_entry_seconds",
                                   "Time that the slowest member of a world needed to come into "
                                   "it and through its first step, by part."),
                  "part", kEntryPartNames, kChangeBuckets),
      received_(counter_family(registry, "hvd_world_received_bytes_total",
                               "Bytes of the state that members received when they came into a "
                               "world.")
                    .Add({})),
      redone_(counter_family(registry, "hvd_steps_redone_total",
                             "Steps of the program that were done again since a world ended "
                             "without a commit.")
                  .Add({})),
      generation_(gauge_family(registry, "hvd_world_generation",
                               "Generation of the world in force; 0 before the first one.")
                      .Add({})),
      size_(gauge_family(registry, "hvd_world_size", "Workers in the world in force.").Add({})),
      committed_(gauge_family(registry, "hvd_world_committed_generation",
                              "Newest generation that a commit has taken into force; 0 if none "
                              "has.")
                     .Add({})) {
  if (!std::holds_alternative<JobStart::Elastic>(start.workers)) return;

  const Limits& limits = start.options.elastic.limits;
  add_limit(registry, "hvd_world_min_size", "Smallest world with which the job goes on (--min-np).",
            limits.least);
  if (limits.most == 0) return;
  add_limit(registry, "hvd_world_max_size", "Largest world of the job (--max-np).", limits.most);
}

void WorldMetrics::on_step(const JobStep& step, const NamedByStep& named) {
  if (!begun_) begun_ = step.now;
  note_disruption(step, named);
  if (const auto* const entered = std::get_if<event::WorldEntered>(&step.event)) {
    if (entered->generation == step.job.world().generation) on_entry(*entered);
  }
  for (const auto& action : step.actions) {
    const auto* const published = std::get_if<action::PublishWorld>(&action);
    if (published != nullptr) on_world(published->world, step);
  }
}

void WorldMetrics::on_entry(const event::WorldEntered& entered) {
  const std::array<Duration, kEntryParts> parts{entered.leave, entered.wait, entered.connect,
                                                entered.vote,  entered.sync, entered.step};
  for (std::size_t part = 0; part < parts.size(); ++part) {
    entry_time_[part].Observe(seconds_of(parts[part]));
  }
  received_.Increment(static_cast<double>(entered.received));
  redone_.Increment(static_cast<double>(entered.redone));
}

// A member of the world in force was lost, or has to end.
void WorldMetrics::note_disruption(const JobStep& step, const NamedByStep& named) {
  if (disruption_) return;
  const bool begins =
      std::any_of(named.workers.begin(), named.workers.end(), [&](std::size_t index) {
        const JobWorker& worker = step.job.workers()[index];
        const bool is_gone = !worker.how.empty() || worker.membership == MemberStatus::removed;
        return is_gone && members_.contains(worker.member.incarnation);
      });
  if (begins) disruption_ = Disruption{step.now, members_.size()};
}

void WorldMetrics::on_world(const WorldDocument& world, const JobStep& step) {
  if (world.state == WorldState::effective) return on_effective(world, step);
  proposed_.emplace(world.generation, step.now);
}

void WorldMetrics::on_effective(const WorldDocument& world, const JobStep& step) {
  const WorldCause cause = cause_of(world, step);
  formed_[cause].Increment();

  const auto proposed = proposed_.find(world.generation);
  if (cause == WorldCause::start) {
    change_time_[cause].Observe(seconds_of(step.now - *begun_));
  } else if (proposed != proposed_.end()) {
    change_time_[cause].Observe(seconds_of(step.now - proposed->second));
    committed_.Set(static_cast<double>(world.generation));
  } else if (disruption_) {
    change_time_[cause].Observe(seconds_of(step.now - disruption_->since));
  }

  note_full_size(world, cause, step.now);
  members_.clear();
  for (const auto& member : world.members) members_.insert(member.incarnation);
  // A loss that came with this world is no disruption of it. Worlds that were proposed before are
  // superseded, unless they are newer.
  disruption_.reset();
  proposed_.erase(proposed_.begin(), proposed_.upper_bound(world.generation));
}

WorldCause WorldMetrics::cause_of(const WorldDocument& world, const JobStep& step) const {
  if (world.last) return WorldCause::suspended;
  if (members_.empty()) return WorldCause::start;
  if (voids_commits(step)) return cause_of_restart(world, step.job);
  if (proposed_.contains(world.generation)) return cause_at_commit(world);
  return cause_of_loss(world, step.job);
}

WorldCause WorldMetrics::cause_at_commit(const WorldDocument& world) const {
  std::size_t staying = 0;
  for (const auto& member : world.members) {
    if (members_.contains(member.incarnation)) ++staying;
  }
  const bool somebody_joined = staying < world.members.size();
  const bool somebody_left = staying < members_.size();
  if (somebody_joined && somebody_left) return WorldCause::replaced;
  return somebody_joined ? WorldCause::joined : WorldCause::left;
}

WorldCause WorldMetrics::cause_of_loss(const WorldDocument& world, const Job& job) const {
  std::set<Incarnation> gone = members_;
  for (const auto& member : world.members) gone.erase(member.incarnation);
  bool somebody_failed = false;
  for (const Incarnation incarnation : gone) {
    const JobWorker& worker = job.workers()[job.index_of(incarnation)];
    if (worker.state == WorkerState::lost) return WorldCause::host_lost;
    somebody_failed = somebody_failed || !worker.how.empty();
  }
  return somebody_failed ? WorldCause::worker_lost : WorldCause::left;
}

// All members of a program without hvd are new.
WorldCause WorldMetrics::cause_of_restart(const WorldDocument& world, const Job& job) const {
  const WorldCause cause = cause_of_loss(world, job);
  if (cause != WorldCause::left || world.members.size() < members_.size()) return cause;
  return world.members.size() > members_.size() ? WorldCause::joined : WorldCause::replaced;
}

// A world that is small because its members left as they were asked to is as large as it should be.
void WorldMetrics::note_full_size(const WorldDocument& world, WorldCause cause, TimePoint now) {
  const bool is_loss = cause == WorldCause::worker_lost || cause == WorldCause::host_lost;
  if (is_loss && !too_small_) too_small_ = disruption_;
  if (!too_small_) return;
  if (cause == WorldCause::left && world.members.size() < members_.size()) {
    too_small_->size_before -=
        std::min(too_small_->size_before, members_.size() - world.members.size());
  }
  if (world.members.size() < too_small_->size_before) return;
  replacement_time_.Observe(seconds_of(now - too_small_->since));
  too_small_.reset();
}

void WorldMetrics::look(const Job& job) {
  generation_.Set(static_cast<double>(job.world().generation));
  size_.Set(static_cast<double>(members_.size()));
}

}  // namespace hvd::driver
