// Threads with an owner. A group refuses new threads once it is closed, waits for those that run,
// and ends the process if it is destroyed while one of them still does: a thread that outlives
// what it uses would be found much later, and elsewhere.
//
// Safe from any thread, but for the destructor. No thread of a group may wait for its own group.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "base/clock.h"
#include "base/status.h"

namespace hvd {

class ThreadGroup {
 public:
  enum class Stack {
    small,          // 512 KiB, so that there may be many threads
    of_the_system,  // for code of the program, such as its callbacks
  };
  explicit ThreadGroup(Stack stack = Stack::small);
  // Every thread has ended, or was left behind by join_until().
  ~ThreadGroup();
  ThreadGroup(const ThreadGroup&) = delete;
  ThreadGroup& operator=(const ThreadGroup&) = delete;

  // Runs `work` on a new thread with all signals blocked, since those belong to the main loop.
  // `work` is destroyed on that thread. aborted: the group is closed; resource_exhausted and the
  // like: the system gives no thread.
  Status start(std::function<void()> work);
  // Threads whose work has not ended yet.
  std::size_t running() const;

  // From now on start() refuses.
  void close();
  // Closes the group and waits for all of its threads.
  void join();
  // As join(), but only until `deadline`. Threads that still run then are left behind: they no
  // longer belong to the group and must own all that they use. Only for calls that nothing can
  // interrupt, such as a name lookup or a read from a file system that does not answer. Returns
  // their number.
  std::size_t join_until(TimePoint deadline);

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the threads
  [[maybe_unused]] Stack stack_;  // sanitizers need large ones in any case
};

}  // namespace hvd
