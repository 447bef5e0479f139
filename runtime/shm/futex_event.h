// An event in shared memory, on a futex: threads of many processes sleep on it until something has
// changed in the memory that they share. All zeros are its initial state.
//
// No change is missed: a writer notifies after its change, and a waiter checks once more after it
// has announced that it is about to sleep. A notification costs nothing while there is no sleeper.
// Each notification wakes every sleeper, which then checks whether it was meant for it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/clock.h"

namespace hvd::runtime {

class FutexEvent {
 public:
  // The change before it and the reads of `changed` must be sequentially consistent atomic
  // accesses.
  void notify() {
    if (sleepers_.load() > 0) notify_all();
  }
  // Wakes sleepers for an event outside of the shared memory, such as an abort.
  void notify_all();

  // Sleeps until changed() or the deadline; returns what changed() said last.
  template <typename Changed>
  bool sleep_until(TimePoint deadline, Changed changed) {
    for (;;) {
      ++sleepers_;
      const std::uint32_t seen = notifications_.load();
      const bool done = changed();
      const bool late = !done && !sleep(seen, deadline);
      --sleepers_;
      if (done) return true;
      if (late) return changed();
    }
  }

 private:
  // False at the deadline.
  bool sleep(std::uint32_t seen, TimePoint deadline);

  std::atomic<std::uint32_t> notifications_;
  // A process that was killed in its sleep stays counted; that costs one system call for each
  // notification.
  std::atomic<std::uint32_t> sleepers_;
};

}  // namespace hvd::runtime
