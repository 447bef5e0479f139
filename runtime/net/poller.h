// Waits for descriptors and for wake(). Safe from any thread, once it is open; but events go to
// whoever waits first.
#pragma once

#include <atomic>
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
  // The same, but there is an event only when something new has come: for whoever reads until there
  // is nothing left.
  void watch_news(int fd, bool also_writable = false);
  void ignore(int fd);  // until it is watched again
  void forget(int fd);  // before it is closed
  // Readable while wait() would not block: a poller can be watched by another one.
  int descriptor() const { return epoll_.get(); }
  // Blocks until something happened, wake() was called, or the deadline. wake() gives no event.
  std::vector<Event> wait(TimePoint deadline);
  // The same without blocking; true if wait() would have returned at once.
  bool look(std::vector<Event>& events);
  void wake();
  // The same, after this time at the latest; for what can wait a little, but must not be forgotten.
  void wake_within(Duration time);

 private:
  void watch(int fd, std::uint32_t events);
  int take(int milliseconds, std::vector<Event>& events);

  UniqueFd epoll_;
  UniqueFd wakeup_;
  UniqueFd timer_;
  std::atomic<bool> timer_runs_ = false;
};

}  // namespace hvd::runtime
