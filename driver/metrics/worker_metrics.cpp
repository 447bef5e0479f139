#include "driver/metrics/worker_metrics.h"

#include <array>
#include <string_view>
#include <utility>
#include <variant>

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

}  // namespace hvd::driver
