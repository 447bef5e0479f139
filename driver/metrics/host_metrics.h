// Metrics of a job's hosts: how many there are in each state, with how many slots, and how their
// parts in the job ended. For one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "driver/metrics/families.h"
#include "driver/metrics/job_step.h"

namespace hvd::driver {

// How a host's part in the job ended.
enum class HostOutcome : std::uint8_t {
  left,    // it was not needed any more, or is no longer named
  lost,    // it was ready, and then silent, dead or wrong
  failed,  // it could not be made ready
};
inline constexpr std::size_t kHostOutcomes = 3;

class HostMetrics {
 public:
  explicit HostMetrics(prometheus::Registry& registry);

  void on_step(const JobStep& step, const NamedByStep& named);
  void look(const Job& job);

 private:
  static constexpr std::size_t kLiveStates = kHostStates - 1;  // not those that are gone

  ByLabel<prometheus::Gauge, kLiveStates> in_state_;
  prometheus::Gauge& slots_;
  prometheus::Counter& joined_;
  ByLabel<prometheus::Counter, kHostOutcomes> ended_;
  std::vector<HostState> seen_;  // by index of Job::hosts()
};

}  // namespace hvd::driver
