// The time since the last message of the driver: after the orphan timeout all workers are killed.
// Two kinds of silence do not count: while this process itself was stopped, and while a driver on
// this machine was stopped (if it had ended, the link would have ended). Pure: the caller passes
// the time and the observations; a value for one thread.
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

  // A message of any kind has come from the driver.
  void heard(TimePoint now) { heard_ = now; }

  // When look() must be called next.
  TimePoint next_look() const { return look_at_; }
  // True if the silence has lasted for the limit.
  bool look(TimePoint now, bool driver_is_stopped) {
    if (limit_.count() == 0) return false;
    own_.look(now);
    // A driver that was continued a moment ago has not had the time to send.
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
