// Whether the other side of a connection has been silent for too long. Only silence counts that
// this process was there to hear: time in which it was itself stopped does not (own_time.h).
//
// Pure: it is told the time. A value for one thread.
#pragma once

#include <algorithm>

#include "base/clock.h"
#include "base/machine/own_time.h"

namespace hvd {

class PeerSilence {
 public:
  // `now` counts as the first sign of life.
  PeerSilence(Duration limit, TimePoint now) : limit_(limit), heard_(now), own_(pace_of(limit)) {
    own_.look(now);
  }

  // How often look() has to be called, and how often the other side should say something.
  Duration pace() const { return own_.pace(); }
  void look(TimePoint now) { own_.look(now); }
  void hear(TimePoint now) { heard_ = now; }
  // To be asked when everything that had arrived was heard.
  bool is_too_long(TimePoint now) const {
    return now - heard_ - own_.stopped_between(heard_, now) > limit_;
  }
  Duration limit() const { return limit_; }

 private:
  static constexpr int kLooks = 10;  // in the limit
  static Duration pace_of(Duration limit) {
    return std::max<Duration>(limit / kLooks, std::chrono::milliseconds(1));
  }

  Duration limit_;
  TimePoint heard_;
  OwnTime own_;
};

}  // namespace hvd
