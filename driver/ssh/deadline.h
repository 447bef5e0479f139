// How long the threads of the launcher wait for anything outside this process: until a time, or
// until their attempt is stopped, whichever comes first. Nothing in this folder waits in another
// way.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <poll.h>
#include <span>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/machine/own_time.h"
#include "base/status.h"

namespace hvd::driver::ssh {

// How often the socket of a libssh session is looked at while it is polled: libssh may hold bytes
// that it has read and not processed, and poll() knows nothing of them.
inline constexpr std::chrono::milliseconds kPollInterval{200};

// A flag with a descriptor, which is readable once the flag is set and until it is read. Safe from
// any thread.
class EventFlag {
 public:
  EventFlag();
  void set() const;
  bool is_set() const;
  int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
};

// A point in time together with a stop token. It comes later by the time for which this process was
// stopped since the beginning of the wait (base/machine/own_time.h). A value: it refers to the
// token, which must outlive it.
struct Deadline {
  const EventFlag* stop = nullptr;
  TimePoint at = kNever;
  TimePoint begin = Clock::now();

  // The end of the wait, with the stops that are known by now.
  TimePoint ends() const { return at == kNever ? kNever : at + stopped_since(begin); }
  // deadline_exceeded or aborted once no time is left.
  Status check() const;
  // Waits until one of `fds` is ready. It is also ok if none is by `at_most`.
  Status poll(std::span<pollfd> fds, TimePoint at_most = kNever) const;
  Status wait_for(int fd, short events) const;
};

// Runs a call that cannot be interrupted, such as a name lookup, on a thread of its own, and waits
// for it until the deadline. A thread that is still in the call then is left behind: `work` must
// own all that it uses. resource_exhausted if too many such calls are in progress already.
Status call_with_deadline(const Deadline& deadline, std::function<void()> work);

}  // namespace hvd::driver::ssh
