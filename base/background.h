// Work on files, in order, on a thread of its own: a disk that is slow, or a file system that does
// not answer, holds up nobody else. At the end work that hangs is left behind with its thread, so
// it must own all that it uses.
//
// Safe from any thread, but for the destructor.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/threads.h"

namespace hvd {

class Background {
 public:
  // `patience`: a piece of work that takes longer hangs.
  explicit Background(Duration patience);
  ~Background();  // finish()
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // Does not wait. The work is destroyed where it is done, or dropped. resource_exhausted and the
  // like: the system gives no thread; aborted: after finish(). Then it is never done.
  Status add(std::size_t bytes, std::function<void()> work);
  // Bytes of the work that is not done yet.
  std::size_t waiting() const;
  // For how long the work in progress has been done.
  Duration held_up(TimePoint now) const;
  bool hangs(TimePoint now) const { return held_up(now) > patience_; }
  // Until all is done; false as soon as a piece of it hangs.
  bool wait() const;
  // Work that is given up. Destroying it may run callbacks of whoever waits for it.
  struct Dropped {
    std::size_t bytes = 0;
    std::vector<std::function<void()>> work;
  };
  // Gives up the work that waits; the one in progress goes on.
  Dropped drop();
  // As wait(), and nothing can be added any more. If it hangs, the rest is dropped, and the thread
  // left behind.
  bool finish();

 private:
  struct State;
  static void run(State& state);

  const Duration patience_;
  std::shared_ptr<State> state_;  // shared with the thread
  ThreadGroup threads_;           // at most one, from the first work on
};

}  // namespace hvd
