#include "driver/job/job_time.h"

#include <algorithm>

namespace hvd::driver {

std::optional<Duration> JobTime::look(TimePoint now) {
  std::optional<Duration> held_up;
  if (is_hold_up(now)) {
    held_up = now - looked_;
    stands_ = own(now);
    goes_on_ = now + pace_;
  }
  looked_ = now;
  if (pace_.count() != 0 && (next_look_ == kNever || now >= next_look_)) next_look_ = now + pace_;
  return held_up;
}

void JobTime::stopped(Duration time, TimePoint now) {
  stands_ = own(now - time);
  goes_on_ = now + pace_;
  looked_ = now;
}

TimePoint JobTime::own(TimePoint now) const {
  if (!is_hold_up(now)) return running(now);
  const bool has_just_been_held_up = looked_ < goes_on_;
  return has_just_been_held_up ? stands_ + pace_ : running(looked_);
}

TimePoint JobTime::on_clock(TimePoint own) const {
  if (own == kNever) return kNever;
  return goes_on_ + std::max(Duration::zero(), own - stands_);
}

}  // namespace hvd::driver
