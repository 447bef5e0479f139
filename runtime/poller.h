// Waits for descriptors and for wake(). One thread waits; wake() is safe from any.
#pragma once

#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace hvd::runtime {

class Poller {
 public:
  struct Event {
    int fd = -1;
    bool readable = false;  // or closed, or broken: reading tells
    bool writable = false;
  };

  // Once, before anything else.
  Status open();
  void watch(int fd, bool also_writable = false);  // again: changes what is watched
  void forget(int fd);                             // before it is closed
  // Blocks until something happened, wake() was called, or the deadline. wake() gives no event.
  std::vector<Event> wait(TimePoint deadline);
  void wake();

 private:
  UniqueFd epoll_;
  UniqueFd wakeup_;
};

}  // namespace hvd::runtime
