// Workers that wait in hvd::init() for others that live and have not called it yet: when a person
// is told, and when it has taken too long. Pure; a static and an elastic job have one each.
//
// A value for one thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "base/clock.h"

namespace hvd::driver {

class InitWatch {
 public:
  // So many of those that are waited for are named each time.
  static constexpr std::size_t kNamed = 3;

  // `limit` zero: the wait has no end. A limit below kFirstReport * kReportsAtLeast is told of
  // earlier.
  explicit InitWatch(std::chrono::milliseconds limit) : limit_(limit) {}

  // Whether anybody waits. Cheap: to be called after each event.
  void set_waiting(bool waiting, TimePoint now) {
    if (waiting == (since_ != kNever)) return;
    since_ = waiting ? now : kNever;
    pause_ = first_pause();
    report_at_ = waiting ? now + pause_ : kNever;
  }

  enum class Due { nothing, report, over };
  Due look(TimePoint now) {
    if (since_ == kNever) return Due::nothing;
    if (now >= over_at()) return Due::over;
    if (now < report_at_) return Due::nothing;
    pause_ = std::min(2 * pause_, std::chrono::milliseconds(kLongestPause));
    report_at_ = now + pause_;
    return Due::report;
  }

  // So much time does not count.
  void extend(Duration time) {
    if (since_ == kNever) return;
    since_ += time;
    report_at_ += time;
  }

  bool is_waiting() const { return since_ != kNever; }
  // When it has taken too long; kNever: it never does, or nobody waits.
  TimePoint over_at() const {
    return since_ == kNever || limit_ == limit_.zero() ? kNever : since_ + limit_;
  }
  TimePoint next_look() const { return std::min(report_at_, over_at()); }
  std::chrono::milliseconds waited(TimePoint now) const {
    return since_ == kNever ? std::chrono::milliseconds(0)
                            : std::chrono::duration_cast<std::chrono::milliseconds>(now - since_);
  }

 private:
  static constexpr std::chrono::seconds kFirstReport{10};
  static constexpr std::chrono::minutes kLongestPause{10};
  static constexpr int kReportsAtLeast = 4;

  std::chrono::milliseconds first_pause() const {
    if (limit_ == limit_.zero()) return kFirstReport;
    return std::min(std::chrono::milliseconds(kFirstReport), limit_ / kReportsAtLeast);
  }

  std::chrono::milliseconds limit_;
  std::chrono::milliseconds pause_{0};
  TimePoint since_ = kNever;
  TimePoint report_at_ = kNever;
};

}  // namespace hvd::driver
