#include "driver/metrics/worker_metrics.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace hvd::driver {
namespace {

constexpr std::array<std::string_view, kWorkerOutcomes> kWorkerOutcomeNames{
    "success", "failure", "signal", "out_of_memory", "stopped", "lost", "never_started"};
constexpr std::array<std::string_view, 2> kStreamNames{"stdout", "stderr"};

}  // namespace

WorkerMetrics::WorkerMetrics(prometheus::Registry& registry)
    : in_state_(gauge_family(registry, "hvd_workers",
                             "Workers that have not ended, by the state of their process."),
                "state", names_of_states<WorkerState, kLiveStates>()),
      started_(counter_family(registry, "hvd_workers_started_total", "Workers that were started.")
                   .Add({})),
      ended_(counter_family(registry, "hvd_workers_ended_total",
                            "Workers that have ended, or were not started in the end, by how."),
             "outcome", kWorkerOutcomeNames),
      restarts_(counter_family(registry, "hvd_worker_restarts_total",
                               "Workers that were started in the slot of one that had ended.")
                    .Add({})),
      group_restarts_(counter_family(registry, "hvd_group_restarts_total",
                                     "Times that all workers of a program without hvd were started "
                                     "again.")
                          .Add({})),
      output_(counter_family(registry, "hvd_worker_output_bytes_total",
                             "Bytes that the workers have written, by stream."),
              "stream", kStreamNames) {}

void WorkerMetrics::add_output(agent_link::Stream stream, std::size_t bytes) {
  output_[stream == agent_link::Stream::standard_error ? 1 : 0].Increment(
      static_cast<double>(bytes));
}

void WorkerMetrics::on_step(const JobStep& step, const NamedByStep& named) {
  seen_.resize(step.job.workers().size());
  // A request in this step is not the reason for which a worker has ended in it.
  for (const std::size_t worker : named.workers) note(worker, step);
  note_actions(step);
}

void WorkerMetrics::note(std::size_t index, const JobStep& step) {
  const JobWorker& worker = step.job.workers()[index];
  Seen& seen = seen_[index];
  if (worker.pid != 0 && !std::exchange(seen.was_started, true)) started_.Increment();
  if (has_ended(worker.state) && !seen.has_ended) {
    ended_[outcome_of(index, step)].Increment();
    seen.has_ended = true;
  }
}

WorkerOutcome WorkerMetrics::outcome_of(std::size_t index, const JobStep& step) const {
  const JobWorker& worker = step.job.workers()[index];
  if (worker.state == WorkerState::never_started) return WorkerOutcome::never_started;
  if (worker.state == WorkerState::lost) return WorkerOutcome::lost;
  if (seen_[index].was_asked_to_end) return WorkerOutcome::stopped;
  const auto* const exited = std::get_if<event::Exited>(&step.event);
  if (exited == nullptr) return WorkerOutcome::failure;
  if (exited->out_of_memory) return WorkerOutcome::out_of_memory;
  if (exited->signal_number != 0) return WorkerOutcome::signal;
  return exited->exit_code == 0 ? WorkerOutcome::success : WorkerOutcome::failure;
}

void WorkerMetrics::note_actions(const JobStep& step) {
  const Job& job = step.job;
  const auto ask_to_end = [&](HostIndex host, Incarnation incarnation) {
    if (incarnation != kEveryWorker) {
      seen_[job.index_of(incarnation)].was_asked_to_end = true;
      return;
    }
    for (const std::size_t worker : job.hosts()[host].workers) {
      seen_[worker].was_asked_to_end = true;
    }
  };

  for (const auto& action : step.actions) {
    if (const auto* const stop = std::get_if<action::StopWorkers>(&action)) {
      ask_to_end(stop->host, stop->incarnation);
    } else if (const auto* const kill = std::get_if<action::KillWorkers>(&action)) {
      ask_to_end(kill->host, kill->incarnation);
    } else if (const auto* const launch = std::get_if<action::Launch>(&action)) {
      const bool is_new = used_.emplace(launch->member.host, launch->member.slot).second;
      if (!is_new) restarts_.Increment();
    } else if (std::holds_alternative<action::VoidCommits>(action)) {
      group_restarts_.Increment();
    }
  }
}

void WorkerMetrics::look(const Job& job) {
  std::array<std::size_t, kLiveStates> counts{};
  for (const auto& worker : job.workers()) {
    if (!has_ended(worker.state)) ++counts[static_cast<std::size_t>(worker.state)];
  }
  for (std::size_t state = 0; state < kLiveStates; ++state) {
    in_state_[state].Set(static_cast<double>(counts[state]));
  }
}

namespace {

constexpr std::array<std::string_view, 3> kSummaryNames{"least", "mean", "most"};

std::array<std::string_view, kCollectives> names_of_kinds() {
  std::array<std::string_view, kCollectives> names;
  for (std::size_t kind = 0; kind < names.size(); ++kind) {
    names[kind] = kind_name(static_cast<Collective>(kind));
  }
  return names;
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

CollectiveMetrics::CollectiveMetrics(prometheus::Registry& registry)
    : operations_(counter_family(registry, "hvd_collective_operations_total",
                                 "Tensors in collectives, of all workers, by kind."),
                  "kind", names_of_kinds()),
      bytes_(counter_family(registry, "hvd_collective_bytes_total",
                            "Bytes of the workers' own tensors in collectives, by kind."),
             "kind", names_of_kinds()),
      steps_per_second_(gauge_family(registry, "hvd_steps_per_second",
                                     "Steps of the program within the last seconds.")
                            .Add({})),
      waits_(gauge_family(registry, "hvd_rank_wait_ratio",
                          "Share of its time during which a rank waits for others: of the rank "
                          "that waits least, on average, of the one that waits most."),
             "rank", kSummaryNames),
      slow_ranks_(
          gauge_family(registry, "hvd_slow_ranks", "Ranks for which the others wait.").Add({})) {}

void CollectiveMetrics::look_at_totals(const WorkBook::Totals& totals) {
  for (std::size_t kind = 0; kind < totals.size(); ++kind) {
    operations_[kind].Increment(
        static_cast<double>(totals[kind].operations - seen_[kind].operations));
    bytes_[kind].Increment(static_cast<double>(totals[kind].bytes - seen_[kind].bytes));
  }
  seen_ = totals;
}

void CollectiveMetrics::look(const Job& job, const WorkWatch& work, TimePoint now) {
  look_at_totals(work.book().totals());

  std::vector<double> steps;
  std::vector<double> waits;
  int slow = 0;
  for (const auto& member : job.world().members) {
    if (work.slow_ranks().is_slow(member.incarnation)) ++slow;
    const auto rate = work.book().rate(member.incarnation, now);
    if (!rate) continue;
    steps.push_back(rate->steps);
    waits.push_back(rate->waited);
  }

  const bool is_known = !steps.empty();
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  steps_per_second_.Set(is_known ? mean(steps) : kUnknown);
  waits_[0].Set(is_known ? *std::min_element(waits.begin(), waits.end()) : kUnknown);
  waits_[1].Set(is_known ? mean(waits) : kUnknown);
  waits_[2].Set(is_known ? *std::max_element(waits.begin(), waits.end()) : kUnknown);
  slow_ranks_.Set(slow);
}

}  // namespace hvd::driver
