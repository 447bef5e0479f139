// Measures how far the clock of a neighbour is ahead of ours. Its time is requested kQuestions
// times in a row over the control tree; the fastest answer counts, and its time is taken to be that
// of the middle of the round trip: so the error is at most half of the shortest round trip.
// Processes of one machine share the clock itself. Clocks drift, so the measurement is repeated
// every kEvery.
//
// A pure state machine, for one thread.
#pragma once

#include <string>
#include <string_view>

#include "runtime/core/activity.h"
#include "runtime/trace/frames.h"

namespace hvd::runtime::trace {

// Equal for two processes if and only if they share the clock; empty: not known.
std::string clock_identity();

class ClockOffset {
 public:
  static constexpr int kQuestions = 8;
  static constexpr Nanoseconds kEvery = 10'000'000'000;

  explicit ClockOffset(std::string own_identity) : identity_(std::move(own_identity)) {}

  // The neighbour is known to be on this machine.
  void share() { shared_ = known_ = true; }
  // Whether to send a request now; if so, it counts as sent.
  bool ask(Nanoseconds now);
  // When ask() may next return true.
  Nanoseconds next_ask() const;
  void answered(const ClockAnswer& answer, Nanoseconds now);
  bool known() const { return known_; }
  Nanoseconds offset() const { return offset_; }  // ours + offset = theirs

 private:
  std::string identity_;
  bool shared_ = false;
  bool known_ = false;
  bool waiting_ = false;  // for an answer
  int answers_ = 0;       // of this round
  Nanoseconds round_at_ = 0;
  Nanoseconds shortest_ = 0;
  Nanoseconds best_ = 0;
  Nanoseconds offset_ = 0;
};

}  // namespace hvd::runtime::trace
