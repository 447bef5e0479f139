// Metrics of a job's workers: how many there are in each state, how many were started and how they
// ended, how much they wrote, and the work that they report. For one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/collective.h"
#include "base/protocol/agent_link.h"
#include "driver/metrics/families.h"
#include "driver/metrics/job_step.h"
#include "driver/work/work_watch.h"

namespace hvd::driver {

// How a worker ended.
enum class WorkerOutcome : std::uint8_t {
  success,        // with exit code 0
  failure,        // with another exit code
  signal,         // somebody else killed it
  out_of_memory,  // the kernel killed it for want of memory
  stopped,        // hvdrun had asked it to end
  lost,           // with its host: nobody knows how
  never_started,
};
inline constexpr std::size_t kWorkerOutcomes = 7;

class WorkerMetrics {
 public:
  explicit WorkerMetrics(prometheus::Registry& registry);

  void on_step(const JobStep& step, const NamedByStep& named);
  void look(const Job& job);
  // An agent has delivered so many bytes that a worker wrote.
  void add_output(agent_link::Stream stream, std::size_t bytes);

 private:
  static constexpr std::size_t kLiveStates = static_cast<std::size_t>(WorkerState::exited);
  struct Seen {
    bool was_started = false;
    bool was_asked_to_end = false;
    bool has_ended = false;
  };

  void note(std::size_t worker, const JobStep& step);
  void note_actions(const JobStep& step);
  WorkerOutcome outcome_of(std::size_t worker, const JobStep& step) const;

  ByLabel<prometheus::Gauge, kLiveStates> in_state_;
  prometheus::Counter& started_;
  ByLabel<prometheus::Counter, kWorkerOutcomes> ended_;
  prometheus::Counter& restarts_;
  prometheus::Counter& group_restarts_;
  ByLabel<prometheus::Counter, 2> output_;

  std::vector<Seen> seen_;                      // by index of Job::workers()
  std::set<std::pair<std::string, int>> used_;  // slots in which a worker was launched
};

// The work of the workers, from what they report (driver/work/work_watch.h):
// operations and bytes of each kind of collective, steps, waits, slow ranks.
class CollectiveMetrics {
 public:
  explicit CollectiveMetrics(prometheus::Registry& registry);

  void look(const Job& job, const WorkWatch& work, TimePoint now);

 private:
  static constexpr std::size_t kSummaries = 3;  // least, mean, most

  void look_at_totals(const WorkBook::Totals& totals);

  ByLabel<prometheus::Counter, kCollectives> operations_;
  ByLabel<prometheus::Counter, kCollectives> bytes_;
  prometheus::Gauge& steps_per_second_;
  ByLabel<prometheus::Gauge, kSummaries> waits_;
  prometheus::Gauge& slow_ranks_;
  WorkBook::Totals seen_{};
};

}  // namespace hvd::driver
