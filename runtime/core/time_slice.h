// The time slice of a thread: for how long it may keep a core that other threads want, too. A
// thread with a short slice that wakes up interrupts one with a long slice at once. A thread with a
// long slice waits until that of the other one is over, up to 3 ms by default, and ranks meet
// hundreds of times in one operation. Each thread gets as much of the core as before.
//
// Linux lets a thread choose its slice from version 6.12 on (sched_setattr(2)); before that nothing
// here has an effect.
#pragma once

#include <cstdint>
#include <optional>
#include <sys/types.h>

namespace hvd::runtime {

// The time slice of a thread of any process, in nanoseconds; 0 is the number of the calling thread.
// Nothing if the kernel does not tell, or the thread has a policy without slices (real-time,
// SCHED_IDLE).
std::optional<std::uint64_t> time_slice(pid_t thread = 0);

// While it lives, from begin() on, the slice of the calling thread is short. Threads and processes
// that it starts meanwhile keep a short slice. For one thread.
class ShortTimeSlice {
 public:
  ShortTimeSlice() = default;
  ~ShortTimeSlice();
  ShortTimeSlice(const ShortTimeSlice&) = delete;
  ShortTimeSlice& operator=(const ShortTimeSlice&) = delete;

  // The first call counts. No effect where time_slice() is nothing, or as short already.
  void begin();

 private:
  bool begun_ = false;
  std::uint64_t before_ = 0;  // nanoseconds; 0: nothing was changed
};

}  // namespace hvd::runtime
