// Binds threads to a core. Threads inherit the binding from the thread that starts them, and so do
// the threads that a library starts.
#pragma once

#include <sched.h>
#include <vector>

#include "base/status.h"

namespace hvd::runtime {

// The cores that the calling thread may run on, in ascending order; empty if the system does not
// tell.
std::vector<int> usable_cores();

// Moves the calling thread off the given cores to another one that it may use; afterwards it may
// use the same ones as before. Returns false if there is no other one.
bool leave_cores(const std::vector<int>& cores);

// While it lives, the calling thread runs on one core only; threads that it starts meanwhile keep
// that binding. Made and destroyed by the same thread.
class PinnedThread {
 public:
  PinnedThread() = default;
  ~PinnedThread();
  PinnedThread(const PinnedThread&) = delete;
  PinnedThread& operator=(const PinnedThread&) = delete;

  // At most once. The error names the core, and the usable cores.
  Status pin(int core);

 private:
  bool pinned_ = false;
  cpu_set_t before_{};
};

}  // namespace hvd::runtime
