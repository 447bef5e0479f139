// Waits for descriptors and calls their handlers. The agent has one loop, on its only thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/status.h"

namespace hvd::agent {

class EventLoop;

// A descriptor is watched for as long as its Watch lives. Declare a Watch after its descriptor, so
// that it is destroyed first.
class Watch {
 public:
  Watch() = default;
  Watch(EventLoop& loop, int fd) : loop_(&loop), fd_(fd) {}
  Watch(Watch&& other) noexcept
      : loop_(std::exchange(other.loop_, nullptr)), fd_(std::exchange(other.fd_, -1)) {}
  Watch& operator=(Watch&& other) noexcept;
  ~Watch() { end(); }
  void end();

 private:
  EventLoop* loop_ = nullptr;
  int fd_ = -1;
};

class EventLoop {
 public:
  using Handler = std::function<void(std::uint32_t events)>;

  static Result<std::unique_ptr<EventLoop>> create();

  // Calls `handler` with the events that epoll reports for `fd`, each time that one of `events`
  // (EPOLLIN | EPOLLET, ...) occurs. A handler may end any watch, its own too.
  Result<Watch> watch(int fd, std::uint32_t events, Handler handler);
  // Watches for other events from now on.
  void change(int fd, std::uint32_t events);
  // Serves pending events; without any, sleeps until the next one or the deadline.
  Status wait(TimePoint deadline);

 private:
  friend class Watch;
  struct Entry {
    std::uint32_t serial = 0;  // tells a descriptor from a later one with the same number
    std::shared_ptr<Handler> handler;
  };
  explicit EventLoop(UniqueFd epoll) : epoll_(std::move(epoll)) {}
  void forget(int fd);

  UniqueFd epoll_;
  std::unordered_map<int, Entry> entries_;
  std::uint32_t last_serial_ = 0;
};

}  // namespace hvd::agent
