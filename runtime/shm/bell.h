// Where threads of many processes sleep until something has changed in the memory that they share.
// It lies in that memory, and zeros are a good beginning.
//
// Nobody sleeps through a change: whoever changes something rings afterwards, and whoever waits
// looks again after he has said that he is about to sleep. Ringing costs nothing while nobody
// sleeps. Every sleeper hears every ring and looks whether it was meant for him.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/clock.h"

namespace hvd::runtime {

class Bell {
 public:
  // All must be atomic accesses in sequential consistency: what was changed, and what `changed`
  // reads.
  void ring() {
    if (sleepers_.load() > 0) ring_loudly();
  }
  // For what sleepers must hear although it is none of what they share, like an abort.
  void ring_loudly();

  // Sleeps until changed() or the deadline; returns what changed() said last.
  template <typename Changed>
  bool sleep_until(TimePoint deadline, Changed changed) {
    for (;;) {
      ++sleepers_;
      const std::uint32_t rings = rings_.load();
      const bool done = changed();
      const bool late = !done && !sleep(rings, deadline);
      --sleepers_;
      if (done) return true;
      if (late) return changed();
    }
  }

 private:
  // False at the deadline.
  bool sleep(std::uint32_t rings, TimePoint deadline);

  std::atomic<std::uint32_t> rings_;
  // One that was killed in its sleep is counted for ever; it costs no more than a system call.
  std::atomic<std::uint32_t> sleepers_;
};

}  // namespace hvd::runtime
