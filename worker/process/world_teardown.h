// The end of worlds that nobody waits for: threads that take them down, with an owner. One per
// process, which is never destroyed, and which the end of the program closes. Safe from any thread,
// but retire() and close() are called one at a time.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <sys/types.h>
#include <thread>

#include "base/threads.h"
#include "runtime/control/world.h"

namespace hvd::worker {

class WorldTeardown {
 public:
  // Takes down a world that a newer one follows: a world that ends waits a moment for the others to
  // hear of it, and the next one need not. Waits for the world that was retired before.
  void retire(std::shared_ptr<runtime::World> world);
  // Drops a reference that may be the last one to a world whose threads hang, behind a GPU event
  // that never comes for example.
  void release(std::shared_ptr<runtime::World> world);
  // Deletes a world, elsewhere if the calling thread is one of a world: it cannot wait for threads
  // of a world, of which it may be one.
  void destroy(runtime::World* world);
  // The program ends: waits for the retired world, and a moment for all others.
  void close();

 private:
  void start(std::function<void()> work);

  std::atomic<pid_t> owner_ = -1;  // a forked child has no thread to wait for
  std::thread retired_;
  // Callbacks of the program may run on these threads, and need a stack as large as elsewhere.
  ThreadGroup others_{ThreadGroup::Stack::of_the_system};
};

}  // namespace hvd::worker
