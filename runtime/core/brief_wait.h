// Waits for other ranks of this host without going to sleep at once: waking a sleeping thread takes
// longer than most of these waits.
#pragma once

#include <chrono>
#include <sched.h>

#include "base/clock.h"

namespace hvd::runtime {

inline void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Returns the last result of is_over(). Where each rank can have a core of its own (`own_core`) it
// spins; otherwise it yields, because the rank that it waits for may need this core, until the time
// is up or another program has kept the core for as long.
template <typename IsOver>
bool wait_briefly(bool own_core, IsOver is_over) {
  constexpr std::chrono::microseconds kSpin{50};
  constexpr std::chrono::microseconds kYield{200};
  if (is_over()) return true;
  const auto until = Clock::now() + (own_core ? kSpin : kYield);
  do {
    if (own_core) {
      pause_core();
    } else {
      ::sched_yield();
    }
    if (is_over()) return true;
  } while (Clock::now() < until);
  return false;
}

}  // namespace hvd::runtime
