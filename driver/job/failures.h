// The failures of an elastic job from which it has not recovered: which of them came first, which
// are still to be told, and how many worlds they have cost. Pure.
//
// A value for one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "driver/job/job_io.h"

namespace hvd::driver {

class Failures {
 public:
  // Failures this soon after the first have its cause.
  static constexpr std::chrono::seconds kOneCause{10};

  // The first of those that belong together is what a person wants to know.
  void note(JobFailure failure, int exit_code, TimePoint now) {
    if (cause_ && now - caused_at_ <= kOneCause) return;
    cause_ = std::move(failure);
    exit_code_ = exit_code;
    caused_at_ = now;
  }
  const std::optional<JobFailure>& cause() const { return cause_; }
  // The job's code, if it ends for that cause.
  int exit_code() const { return exit_code_; }
  // A later failure has a cause of its own.
  void recovered() { cause_.reset(); }

  // This worker had the only copy of the state, and left for this reason.
  void lose_state(std::string why) { state_lost_with_ = std::move(why); }
  const std::string& state_lost_with() const { return state_lost_with_; }
  // The members have worked since.
  void committed() {
    state_lost_with_.clear();
    recovered();
  }

  // A worker that failed is told of once it is decided whether its slot is started again.
  void tell_later(std::size_t worker) { untold_.push_back(worker); }
  std::vector<std::size_t> take_untold() { return std::exchange(untold_, {}); }

  // Returns how many worlds there were because of failures, with this one.
  int count_reset() { return ++resets_; }

 private:
  std::optional<JobFailure> cause_;
  int exit_code_ = 0;
  TimePoint caused_at_{};
  std::string state_lost_with_;
  std::vector<std::size_t> untold_;
  int resets_ = 0;
};

}  // namespace hvd::driver
