// The end of a wait for others that may be slow, but must not be silent: as long as bytes move, the
// wait goes on. The waiter looks at a steady pace, so a short wait costs nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "base/machine/own_time.h"

namespace hvd::runtime {

// A value for one thread. It is told the time.
class Silence {
 public:
  Silence(TimePoint begin, Duration limit)
      : limit_(limit), deadline_(begin, limit), next_look_(begin + pace()) {}

  TimePoint next_look() const { return next_look_; }
  // To be called at next_look(), with the number of bytes that have moved so far. True: none has
  // moved for `limit` or a little longer, in which this process ran.
  bool is_over(std::uint64_t moved, TimePoint now) {
    if (moved_ != moved) deadline_ = OwnDeadline(now, limit_);
    moved_ = moved;
    const bool over = deadline_.passed(now);
    next_look_ = std::min(now + pace(), deadline_.at());
    return over;
  }

 private:
  static constexpr int kLooks = 16;  // in the limit
  Duration pace() const { return limit_ / kLooks; }

  Duration limit_;
  OwnDeadline deadline_;
  TimePoint next_look_;
  std::optional<std::uint64_t> moved_;  // at the last look
};

}  // namespace hvd::runtime
