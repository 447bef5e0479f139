// Which core threads run on. Threads inherit that from who starts them, also those that a library
// starts.
#pragma once

#include <sched.h>
#include <vector>

#include "base/status.h"

namespace hvd::runtime {

// Those that the calling thread may run on, in ascending order; none if the system does not say.
std::vector<int> usable_cores();

// While it lives, the calling thread runs on one core only, and so does, for good, what it starts.
// Made and destroyed by the same thread.
class PinnedThread {
 public:
  PinnedThread() = default;
  ~PinnedThread();
  PinnedThread(const PinnedThread&) = delete;
  PinnedThread& operator=(const PinnedThread&) = delete;

  // Once. The error names the core, and those that there are.
  Status pin(int core);

 private:
  bool pinned_ = false;
  cpu_set_t before_{};
};

}  // namespace hvd::runtime
