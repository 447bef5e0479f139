// Time in which a process itself ran. A process that was stopped (SIGSTOP, Ctrl-Z, a freezer, a
// virtual machine that was held) finds its clock far ahead, and cannot blame others for what they
// did not do meanwhile: often they were stopped with it. A limit that ends something counts only
// the time in which the process that judges ran.
//
// A process notices its own stops by looking at the clock at a steady pace: a gap between two looks
// that is much longer than the pace was a stop.
#pragma once

#include <algorithm>
#include <deque>

#include "base/clock.h"

namespace hvd {

// Pure: it is told the time. A value for one thread.
class OwnTime {
 public:
  // It will be looked at least once in each `pace`, while the process runs.
  explicit OwnTime(Duration pace) : pace_(pace) {}

  // The first look begins it. Looks in quick succession cost nothing.
  void look(TimePoint now);
  // For how long the process was stopped between `begin` and `now`, whether a look has found that
  // already or would find it now. Zero before the first look.
  Duration stopped_between(TimePoint begin, TimePoint now) const;
  Duration pace() const { return pace_; }

 private:
  // Older stops are forgotten: no limit that is worth anything spans so many.
  static constexpr std::size_t kRemembered = 64;
  // A gap is a stop from so many paces on; less than that is a busy machine.
  static constexpr int kStop = 3;
  struct Stop {
    TimePoint begin;
    TimePoint end;
  };
  bool is_stop(TimePoint now) const { return now - looked_ > kStop * pace_; }

  Duration pace_;
  TimePoint looked_ = kNever;  // last
  std::deque<Stop> stops_;     // oldest first
};

// ---- of this process; any thread ----

inline constexpr std::chrono::milliseconds kOwnTimePace{500};
// To be called once in each kOwnTimePace, by one thread. Where nobody does, no stop is noticed.
void look_at_own_time(TimePoint now);
// For how long this process has been stopped since then.
Duration stopped_since(TimePoint begin);

// A limit for a wait that counts only the time in which this process ran. A value for one thread.
class OwnDeadline {
 public:
  OwnDeadline(TimePoint begin, Duration limit) : begin_(begin), limit_(limit), at_(begin + limit) {}
  // When to look again.
  TimePoint at() const { return at_; }
  // Puts the moment off by what this process was stopped since the beginning.
  bool passed(TimePoint now) {
    if (now < at_) return false;
    at_ = begin_ + limit_ + stopped_since(begin_);
    return now >= at_;
  }

 private:
  TimePoint begin_;
  Duration limit_;
  TimePoint at_;
};

// Whether the other side of a connection has been silent for too long. Only silence counts that
// this process was there to hear: time in which it was itself stopped does not.
//
// Pure: it is told the time. A value for one thread.
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
