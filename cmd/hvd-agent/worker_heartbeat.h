// Whether a worker is alive: a thread of its runtime answers pings, whatever the program does. A
// worker that was stopped, or whose process is held up otherwise, does not answer. Pure arithmetic;
// a value for one thread.
#pragma once

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace hvd::agent {

class WorkerHeartbeat {
 public:
  // Pings in each limit, so that silence is noticed soon after the limit.
  static constexpr int kPingsPerLimit = 6;

  // A limit of zero means that silence is never an error.
  explicit WorkerHeartbeat(Duration limit) : limit_(limit) {}

  void begin(TimePoint now) {
    if (limit_ <= Duration::zero() || heard_ != kNever) return;
    excuse(now);
    ping_at_ = now;
  }
  void end() { heard_ = ping_at_ = looked_ = kNever; }
  void heard(TimePoint now) {
    if (heard_ != kNever) heard_ = now;
  }
  // The worker could not answer up to now, for a known reason: the limit begins again.
  void excuse(TimePoint now) {
    heard_ = looked_ = now;
    ping_at_ = now + limit_ / kPingsPerLimit;
  }

  struct Look {
    bool ping = false;
    bool silent = false;
  };
  // The work that is due. If the agent itself was held up since the last look, an answer may wait
  // unread, so that this silence proves nothing.
  Look look(TimePoint now) {
    if (heard_ == kNever) return {};
    if (now - std::exchange(looked_, now) > limit_ / 2) excuse(now);
    const bool ping = now >= ping_at_;
    if (ping) ping_at_ = now + limit_ / kPingsPerLimit;
    return {ping, now - heard_ >= limit_};
  }
  TimePoint deadline() const {
    return heard_ == kNever ? kNever : std::min(ping_at_, heard_ + limit_);
  }
  Duration limit() const { return limit_; }

 private:
  Duration limit_;
  TimePoint heard_ = kNever;
  TimePoint ping_at_ = kNever;
  TimePoint looked_ = kNever;
};

}  // namespace hvd::agent
