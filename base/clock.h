// Time, as everything in hvd measures it: monotonic. Pure parts are handed `now`; only the shells
// around them call Clock::now().
#pragma once

#include <chrono>
#include <ctime>

namespace hvd {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using Duration = Clock::duration;

inline constexpr TimePoint kNever = TimePoint::max();

// Milliseconds from now until `deadline`, rounded up, for poll() and epoll_wait(): -1 for kNever, 0
// if past.
inline int milliseconds_until(TimePoint deadline, TimePoint now) {
  if (deadline == kNever) return -1;
  if (deadline <= now) return 0;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now).count();
  return left > 1'000'000'000 ? 1'000'000'000 : static_cast<int>(left);
}

// As system calls want it; `time` is not negative.
inline timespec to_timespec(Duration time) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
  return {static_cast<std::time_t>(seconds.count()),
          static_cast<long>(std::chrono::nanoseconds(time - seconds).count())};
}

}  // namespace hvd
