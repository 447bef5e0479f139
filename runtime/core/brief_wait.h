// Waits for other ranks of this host without going to sleep at once: waking a sleeping thread takes
// longer than most of these waits.
#pragma once

#include <algorithm>
#include <chrono>
#include <sched.h>
#include <utility>

#include "base/clock.h"

namespace hvd::runtime {

inline void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// How one thread at a time waits. Where each rank can have a core of its own it spins; otherwise it
// yields, because the rank that it waits for may need this core. Other programs may take the core
// at a yield and keep it for milliseconds, whereas a thread that sleeps gets it back as soon as it
// is woken: after such a yield waits give up at once for a while, the longer the more often it
// happens.
class BriefWait {
 public:
  // Returns the last result of is_over(). `own_core`: it may spin.
  template <typename IsOver>
  bool until(bool own_core, IsOver is_over) {
    if (is_over()) return true;
    const auto begin = Clock::now();
    return own_core ? spin(begin, is_over) : begin >= crowded_until_ && yield(begin, is_over);
  }

 private:
  template <typename IsOver>
  static bool spin(TimePoint begin, IsOver is_over) {
    constexpr std::chrono::microseconds kLongest{50};
    do {
      pause_core();
      if (is_over()) return true;
    } while (Clock::now() - begin < kLongest);
    return false;
  }

  template <typename IsOver>
  bool yield(TimePoint now, IsOver is_over) {
    constexpr std::chrono::microseconds kLongest{200};
    constexpr std::chrono::milliseconds kLongYield{1};
    constexpr std::chrono::milliseconds kShortest{2};
    constexpr std::chrono::milliseconds kMost{256};
    const auto end = now + kLongest;
    bool is_crowded = false;
    bool over = false;
    while (!over && now < end) {
      ::sched_yield();
      over = is_over();
      const auto before = std::exchange(now, Clock::now());
      is_crowded = now - before > kLongYield;
    }

    crowded_for_ =
        is_crowded ? std::clamp<Duration>(2 * crowded_for_, kShortest, kMost) : crowded_for_ / 2;
    if (is_crowded) crowded_until_ = now + crowded_for_;
    return over;
  }

  Duration crowded_for_{};
  TimePoint crowded_until_;
};

}  // namespace hvd::runtime
