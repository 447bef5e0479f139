#include "runtime/shm/futex_event.h"

#include <cerrno>
#include <climits>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace hvd::runtime {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

// Not the private kind: its sleepers are in many processes.
void FutexEvent::notify_all() {
  ++notifications_;
  ::syscall(SYS_futex, &notifications_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool FutexEvent::sleep(std::uint32_t seen, TimePoint deadline) {
  const auto now = Clock::now();
  if (now >= deadline) return false;
  const timespec timeout = to_timespec(deadline - now);
  const auto slept = ::syscall(SYS_futex, &notifications_, FUTEX_WAIT, seen, &timeout, nullptr, 0);
  return slept == 0 || errno != ETIMEDOUT;
}

}  // namespace hvd::runtime
