// Waits for descriptors and for wake(). Safe from any thread once it is open; each event is
// returned to one waiting thread only.
#pragma once

#include <atomic>
#include <vector>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/status.h"

namespace hvd::runtime {

class Poller {
 public:
  struct Event {
    int fd = -1;
    bool readable = false;  // or closed, or broken: a read tells which
    bool writable = false;
  };

  // Once, before anything else.
  Status open();
  void watch(int fd, bool also_writable = false);  // may be called again to change what is watched
  // The same, edge-triggered: an event comes only when there is something new, so the caller must
  // read until nothing is left.
  void watch_edge_triggered(int fd, bool also_writable = false);
  void ignore(int fd);  // until it is watched again
  void forget(int fd);  // before it is closed
  // Readable while wait() would not block, so that one poller can watch another.
  int descriptor() const { return epoll_.get(); }
  // Blocks until something happened, wake() was called, or the deadline. wake() gives no event.
  std::vector<Event> wait(TimePoint deadline);
  // The same without blocking; true if wait() would have returned at once. Events are appended.
  bool look(std::vector<Event>& events);
  void wake();
  // The same, but only after this time at the latest, so that several such calls cause one wake-up.
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
