// How long nothing has come from the driver: after the orphan timeout all workers are killed. Two
// kinds of silence prove nothing and do not count: the time in which this process was stopped
// itself, and the time in which a driver on this very machine was (its end is seen by the end of
// the link). Pure: it is told the time and what was seen; a value for one thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/machine/own_time.h"

namespace hvd::agent {

class OrphanTimer {
 public:
  // `limit` zero: never over.
  OrphanTimer(std::chrono::milliseconds limit, TimePoint now)
      : limit_(limit), own_(pace_for(limit)), heard_(now) {
    look(now, false);
  }

  // Anything at all has come from the driver.
  void heard(TimePoint now) { heard_ = now; }

  // When look() wants to be called.
  TimePoint next_look() const { return look_at_; }
  // True: the silence has lasted for the limit.
  bool look(TimePoint now, bool driver_is_stopped) {
    if (limit_.count() == 0) return false;
    own_.look(now);
    // One that goes on again may have done so a moment ago, so that nothing can have come yet.
    if (std::exchange(driver_was_stopped_, driver_is_stopped) || driver_is_stopped) heard_ = now;
    const TimePoint end = heard_ + limit_ + own_.stopped_between(heard_, now);
    look_at_ = std::min(now + own_.pace(), end);
    return now >= end;
  }
  std::chrono::milliseconds limit() const { return limit_; }
  // For how long this process was stopped itself.
  Duration stopped_between(TimePoint begin, TimePoint now) const {
    return own_.stopped_between(begin, now);
  }

 private:
  static Duration pace_for(std::chrono::milliseconds limit) {
    constexpr int kLooksPerLimit = 16;
    return std::clamp<Duration>(Duration(limit) / kLooksPerLimit, std::chrono::milliseconds(5),
                                std::chrono::seconds(2));
  }
  std::chrono::milliseconds limit_;
  OwnTime own_;
  TimePoint heard_;
  TimePoint look_at_ = kNever;
  bool driver_was_stopped_ = false;
};

}  // namespace hvd::agent
