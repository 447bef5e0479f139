// The job's own time, by which all its limits are counted. It stands still while hvdrun is held up:
// somebody stopped hvdrun or its virtual machine, or the machine is overloaded. Messages of that
// time lie unread, and nobody is to blame for a wait in which hvdrun heard nothing.
//
// A hold-up is a gap between two looks at the clock that is longer than three paces and a third.
// After it the own time stands still for one pace more, in which what lies unread is read: nothing
// is judged before. A process that is late at every look would get nowhere, so that of hold-ups
// that follow each other so closely each counts as one pace.
//
// Pure: it is told the time. A value for one thread.
#pragma once

#include <chrono>
#include <optional>

#include "base/clock.h"

namespace hvd::driver {

class JobTime {
 public:
  // It will be looked at least once in each `pace`, while the process runs; 0: nothing is taken for
  // a hold-up.
  explicit JobTime(std::chrono::milliseconds pace) : pace_(pace) {}

  // How long the process was held up until now, if it was.
  std::optional<Duration> look(TimePoint now);
  // It was looked at in time until now.
  void pass(TimePoint now) { looked_ = now; }
  // The process had stopped itself (Ctrl-Z), and goes on; to be told before the next look.
  void stopped(Duration time, TimePoint now);

  // Also right while a hold-up has not been found yet.
  TimePoint own(TimePoint now) const;
  // When this moment of the own time comes, if there is no further hold-up.
  TimePoint on_clock(TimePoint own) const;
  // When to look at the latest; kNever if that does not matter.
  TimePoint next_look() const { return next_look_; }

 private:
  static constexpr int kStallThirds = 10;  // of a pace
  bool is_hold_up(TimePoint now) const {
    return looked_ != kNever && pace_.count() != 0 && 3 * (now - looked_) > kStallThirds * pace_;
  }
  // Without hold-ups.
  TimePoint running(TimePoint now) const {
    return now < goes_on_ ? stands_ : stands_ + (now - goes_on_);
  }

  std::chrono::milliseconds pace_;
  TimePoint looked_ = kNever;  // last
  TimePoint next_look_ = kNever;
  TimePoint stands_{};   // the own time ...
  TimePoint goes_on_{};  // ... until this moment of the clock
};

}  // namespace hvd::driver
