// A second opinion on the job's own time (driver/job/job_time.h), added up from step to step: a gap
// that was a hold-up counts nothing, nor does the pace after it. A value for one thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <variant>

#include "base/clock.h"
#include "driver/job/job_io.h"

namespace hvd::driver {

class HoldUps {
 public:
  explicit HoldUps(std::chrono::milliseconds pace) : pace_(pace) {}

  // At each step.
  void look(TimePoint now) {
    const bool is_first = looked_ == TimePoint{};
    const Duration gap = now - looked_;
    is_in_a_row_ = !is_first && is_hold_up(gap) && looked_ < read_by_;
    held_up_for_ = !is_first && is_hold_up(gap) ? gap : Duration::zero();
    if (is_first) {
      own_ = now;
    } else if (!is_hold_up(gap)) {
      own_ += std::max(Duration::zero(), now - std::max(looked_, read_by_));
    } else {
      if (is_in_a_row_) own_ += pace_;
      read_by_ = now + pace_;
    }
    looked_ = now;
  }

  // In place of a look: another driver goes on. The time without one does not count.
  void took_over(TimePoint now) {
    looked_ = now;
    read_by_ = now + pace_;
    held_up_for_ = Duration::zero();
    is_in_a_row_ = false;
  }

  TimePoint own() const { return own_; }
  // Until this step; zero if it was not.
  Duration held_up_for() const { return held_up_for_; }
  // Nothing is judged by time now: what was said during the hold-up may lie unread.
  bool may_lie_unread() const { return looked_ < read_by_ && !is_in_a_row_; }

 private:
  bool is_hold_up(Duration gap) const { return pace_.count() != 0 && 3 * gap > 10 * pace_; }

  std::chrono::milliseconds pace_;
  TimePoint own_{};
  TimePoint looked_{};
  TimePoint read_by_{};
  Duration held_up_for_{};
  bool is_in_a_row_ = false;
};

inline bool is_said_of_a_hold_up(const Action& action) {
  const auto* const said = std::get_if<action::Say>(&action);
  return said != nullptr && said->text.starts_with("hvdrun was held up for ");
}

}  // namespace hvd::driver
