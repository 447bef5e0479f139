// Time, as everything in hvd measures it: monotonic. Pure parts are handed `now`; only the shells
// around them call Clock::now(). And times as text. Pure, and safe from any thread.
#pragma once

#include <chrono>
#include <ctime>
#include <string>

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

// ---- for people and files ----

// "5 s", "0.3 s". Rounded up to tenths, as is right for limits.
std::string seconds_text(Duration limit);
// The same of a time that was measured: rounded to the nearest tenth, and never negative.
std::string measured_text(Duration time);

// Longer ones, in whole seconds: "2 h 5 min", "2 min 4 s", "4 s".
std::string duration_text(double seconds);
// A moment of the calendar, in UTC, as ISO 8601 has it: "2026-11-25T12:00:00.250Z"
std::string utc_text(std::chrono::system_clock::time_point time);

}  // namespace hvd
