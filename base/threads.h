// Threads with an owner, threads that end by force, and locks beside a fork.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>

#include "base/clock.h"
#include "base/status.h"

namespace hvd {

// Threads with an owner. A group refuses new threads once it is closed, waits for those that run,
// and ends the process if it is destroyed while one of them still does: a thread that outlives
// what it uses would be found much later, and elsewhere.
//
// Safe from any thread, but for the destructor. No thread of a group may wait for its own group.
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

// Threads that end by force: pthread_cancel() and pthread_exit() unwind the stack like an
// exception, which every `catch (...)` on the way must pass on, or the process is aborted.
//
// Within `catch (...)`: what was caught is no exception but the end of this thread, to be passed on
// with `throw;`. The system's unwinding carries no exception object.
//
// (`catch (abi::__forced_unwind&)` says the same, but binds a reference to no object, which
// UndefinedBehaviorSanitizer rightly reports.)
inline bool thread_is_ending() noexcept { return std::current_exception() == nullptr; }

// A lock of the process that a forked child finds free. A child does not have the thread that holds
// a lock while the process is forked: the lock would stay locked there for ever.
//
// From now on the thread that forks takes this mutex, and both processes give it back. fork() waits
// for whoever holds it: it is for locks that are held for a moment. The mutex is never destroyed.
// Any thread may call. A static variable of a function has a lock of the compiler's besides, for
// which no fork can wait: the file that has one calls the function when the library is loaded.
void keep_free_in_children(std::mutex& mutex);

}  // namespace hvd
