// Whether a worker shows signs of life: its runtime answers when it is asked, on a thread of its
// own, whatever the program does. One that was stopped, or whose process is held up otherwise,
// answers no more. Pure arithmetic; a value for one thread.
#pragma once

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace hvd::agent {

class WorkerHeartbeat {
 public:
  // Questions in each limit: silence is noticed within the limit, not within more.
  static constexpr int kQuestions = 6;

  // Begins at the first answer that can be expected; zero: never does.
  explicit WorkerHeartbeat(Duration limit) : limit_(limit) {}

  void begin(TimePoint now) {
    if (limit_ <= Duration::zero() || heard_ != kNever) return;
    excuse(now);
    ask_at_ = now;
  }
  void end() { heard_ = ask_at_ = looked_ = kNever; }
  void heard(TimePoint now) {
    if (heard_ != kNever) heard_ = now;
  }
  // It was silent with good reason up to now: the limit begins again.
  void excuse(TimePoint now) {
    heard_ = looked_ = now;
    ask_at_ = now + limit_ / kQuestions;
  }

  struct Look {
    bool ask = false;
    bool silent = false;
  };
  // What is due. Whoever looks so late that it was held up itself cannot judge others: what they
  // said may lie unread.
  Look look(TimePoint now) {
    if (heard_ == kNever) return {};
    if (now - std::exchange(looked_, now) > limit_ / 2) excuse(now);
    const bool ask = now >= ask_at_;
    if (ask) ask_at_ = now + limit_ / kQuestions;
    return {ask, now - heard_ >= limit_};
  }
  TimePoint deadline() const {
    return heard_ == kNever ? kNever : std::min(ask_at_, heard_ + limit_);
  }
  Duration limit() const { return limit_; }

 private:
  Duration limit_;
  TimePoint heard_ = kNever;
  TimePoint ask_at_ = kNever;
  TimePoint looked_ = kNever;
};

}  // namespace hvd::agent
