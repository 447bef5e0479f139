// How long the launcher's threads wait for something outside: until a deadline, or until the
// attempt is given up, whichever comes first. Nothing in this room waits in any other way.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <poll.h>
#include <span>

#include "base/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace hvd::driver::ssh {

// How often whoever polls the socket of a libssh session looks into it: libssh may hold bytes that
// it has read and not looked at, of which poll() knows nothing.
inline constexpr std::chrono::milliseconds kLookAgain{200};

// A descriptor that becomes readable once and stays so. Safe from any thread.
class Signal {
 public:
  Signal();
  void raise() const;
  bool raised() const;
  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
};

// A value: it refers to the Signal, which must outlive it.
struct Patience {
  const Signal* given_up = nullptr;
  TimePoint deadline = kNever;

  // deadline_exceeded or aborted, if there is none left.
  Status left() const;
  // Waits until one of `fds` is ready, but no longer than `at_most`: then it is ok, too.
  Status poll(std::span<pollfd> fds, TimePoint at_most = kNever) const;
  Status wait_for(int fd, short events) const;
  Patience until(TimePoint earlier) const {
    return {.given_up = given_up, .deadline = earlier < deadline ? earlier : deadline};
  }
};

// Runs `work` on a thread of its own and waits for it while there is patience. If that ends first,
// the thread is left to itself: what `work` refers to must live as long as it. For calls that
// cannot be interrupted.
Status run_apart(const Patience& patience, std::function<void()> work);

}  // namespace hvd::driver::ssh
