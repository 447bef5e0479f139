// When a person is told what a job waits for: on a terminal by a live line, which is drawn anew at
// each call; elsewhere by lines at growing intervals. Pure: times are handed in. For one thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace hvd::cli {

class WaitingReport {
 public:
  static constexpr std::chrono::milliseconds kFirstLive{500};
  static constexpr std::chrono::seconds kFirstLine{2};
  static constexpr std::chrono::seconds kFirstPause{5};
  static constexpr std::chrono::seconds kLongestPause{60};

  // The job still waits. Whether the live line is to be drawn.
  bool is_live_due(TimePoint now) {
    begin(now);
    return now - since_ >= kFirstLive;
  }
  // Whether a line is to be written.
  bool is_line_due(TimePoint now) {
    begin(now);
    if (now < line_at_) return false;
    line_at_ = now + pause_;
    pause_ = std::min(2 * pause_, kLongestPause);
    return true;
  }
  // The job waits no longer.
  void end() { since_ = kNever; }
  bool is_waiting() const { return since_ != kNever; }
  // Since the job began to wait.
  Duration waited(TimePoint now) const { return is_waiting() ? now - since_ : Duration::zero(); }

 private:
  void begin(TimePoint now) {
    if (is_waiting()) return;
    since_ = now;
    line_at_ = now + kFirstLine;
    pause_ = kFirstPause;
  }

  TimePoint since_ = kNever;
  TimePoint line_at_ = kNever;
  std::chrono::seconds pause_ = kFirstPause;
};

}  // namespace hvd::cli
