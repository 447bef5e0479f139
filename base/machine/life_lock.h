// A lock in shared memory that a process holds as long as it lives, so that another process hears
// at once that it is dying. The kernel gives up the locks of a process before it frees its memory
// and closes its sockets, which takes 24 ms for a Python program with PyTorch, and seconds for one
// that has filled a machine.
//
// The lock is a robust mutex of POSIX that is shared between processes, beside a semaphore that
// counts how often it was taken.
#pragma once

#include "base/descriptors.h"
#include "base/status.h"

namespace hvd {

class LifeLock {
 public:
  // A free one, in memory of its own.
  static Result<LifeLock> make();
  // The one behind a descriptor that duplicate() of another process has given.
  static Result<LifeLock> open(int descriptor);
  LifeLock(LifeLock&& other) noexcept;
  LifeLock& operator=(LifeLock&&) = delete;
  ~LifeLock();

  // A descriptor of the memory, for another process, to open() it.
  UniqueFd duplicate() const;

  // Takes it for good. The calling thread must run as long as its process. Where the kernel would
  // not give the lock up at the end of the thread, it stays free, and nobody hears of the end.
  void hold();

  // Blocks until a process that has taken it is dying or executes another program, or until stop().
  // False: stop() was called. For one thread.
  bool wait_for_end();
  // Ends wait_for_end(), at the latest when no process holds the lock any more.
  void stop();

 private:
  struct Shared;
  LifeLock(UniqueFd descriptor, Shared* shared);
  // Also after a holder that has died, or executed another program.
  void lock();

  UniqueFd descriptor_;
  Shared* shared_;
};

}  // namespace hvd
