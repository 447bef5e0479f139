// Metrics of the job as a whole: what it is, its state, how long it was in each state, and how long
// the most silent host has not been heard. For one thread.
#pragma once

#include <cstddef>

#include "driver/job/job_options.h"
#include "driver/metrics/families.h"
#include "driver/metrics/job_step.h"

namespace hvd::driver {

class StateMetrics {
 public:
  StateMetrics(prometheus::Registry& registry, const JobIdentity& job, const JobStart& start);

  void on_step(const JobStep& step);
  // Sets what is read off the job. To be called before the metrics are shown.
  void look(const Job& job, TimePoint now);

 private:
  static constexpr std::size_t kJobStates = static_cast<std::size_t>(JobState::finished) + 1;
  void pass_time(TimePoint now);

  ByLabel<prometheus::Gauge, kJobStates> in_state_;
  ByLabel<prometheus::Counter, kJobStates> time_in_state_;
  prometheus::Family<prometheus::Gauge>& silence_;
  prometheus::Gauge* longest_silence_ = nullptr;  // null: nobody is watched
  JobState state_ = JobState::planned;
  TimePoint since_ = kNever;  // the time up to here is counted
};

}  // namespace hvd::driver
