#include "runtime/poller.h"

#include <array>
#include <cerrno>
#include <cstdint>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace hvd::runtime {

Status Poller::open() {
  epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return Status::from_errno("epoll_create", errno);
  wakeup_.reset(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!wakeup_) return Status::from_errno("eventfd", errno);
  watch(wakeup_.get());
  return {};
}

void Poller::watch(int fd, bool also_writable) {
  epoll_event event{};
  event.events = EPOLLIN | (also_writable ? static_cast<std::uint32_t>(EPOLLOUT) : 0U);
  event.data.fd = fd;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) != 0 && errno == ENOENT) {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
  }
}

void Poller::forget(int fd) { ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

std::vector<Poller::Event> Poller::wait(TimePoint deadline) {
  std::array<epoll_event, 64> raw{};
  const int count = ::epoll_wait(epoll_.get(), raw.data(), static_cast<int>(raw.size()),
                                 milliseconds_until(deadline, Clock::now()));
  std::vector<Event> events;
  for (int i = 0; i < count; ++i) {
    const auto& event = raw[static_cast<std::size_t>(i)];
    if (event.data.fd == wakeup_.get()) {
      std::uint64_t times = 0;
      [[maybe_unused]] const auto got = ::read(wakeup_.get(), &times, sizeof(times));
      continue;
    }
    events.push_back({event.data.fd, (event.events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0,
                      (event.events & EPOLLOUT) != 0});
  }
  return events;
}

void Poller::wake() {
  const std::uint64_t once = 1;
  [[maybe_unused]] const auto put = ::write(wakeup_.get(), &once, sizeof(once));
}

}  // namespace hvd::runtime
