#include "runtime/net/poller.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

namespace hvd::runtime {
namespace {

constexpr std::uint32_t kReadable = EPOLLIN;
constexpr std::uint32_t kWritable = EPOLLOUT;
constexpr std::uint32_t kEdgeTriggered = EPOLLET;

}  // namespace

Status Poller::open() {
  epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return Status::from_errno("epoll_create", errno);
  wakeup_.reset(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!wakeup_) return Status::from_errno("eventfd", errno);
  timer_.reset(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!timer_) return Status::from_errno("timerfd", errno);
  // Both are edge-triggered, so neither needs to be read.
  watch_edge_triggered(wakeup_.get());
  watch_edge_triggered(timer_.get());
  return {};
}

void Poller::watch(int fd, bool also_writable) {
  watch(fd, kReadable | (also_writable ? kWritable : 0U));
}

void Poller::watch_edge_triggered(int fd, bool also_writable) {
  watch(fd, kEdgeTriggered | kReadable | (also_writable ? kWritable : 0U));
}

void Poller::ignore(int fd) { watch(fd, std::uint32_t{0}); }

void Poller::watch(int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) != 0 && errno == ENOENT) {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
  }
}

void Poller::forget(int fd) { ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

std::vector<Poller::Event> Poller::wait(TimePoint deadline) {
  std::vector<Event> events;
  take(milliseconds_until(deadline, Clock::now()), events);
  return events;
}

bool Poller::look(std::vector<Event>& events) { return take(0, events) > 0; }

// Returns how many descriptors had something, including the two that cause no event.
int Poller::take(int milliseconds, std::vector<Event>& events) {
  std::array<epoll_event, 64> raw;  // NOLINT(cppcoreguidelines-pro-type-member-init): read into
  const int count =
      ::epoll_wait(epoll_.get(), raw.data(), static_cast<int>(raw.size()), milliseconds);

  for (int i = 0; i < count; ++i) {
    const auto& event = raw[static_cast<std::size_t>(i)];
    if (event.data.fd == wakeup_.get()) continue;
    if (event.data.fd == timer_.get()) {
      // The flag is cleared before the caller looks for work, so a thread that found the timer
      // running had already published its work by then.
      timer_runs_.exchange(false);
      continue;
    }
    events.push_back(
        {event.data.fd, (event.events & ~kWritable) != 0, (event.events & kWritable) != 0});
  }
  return count;
}

void Poller::wake() {
  const std::uint64_t once = 1;
  [[maybe_unused]] const auto put = ::write(wakeup_.get(), &once, sizeof(once));
}

void Poller::wake_within(Duration time) {
  if (timer_runs_.exchange(true)) return;
  itimerspec until{};
  until.it_value = to_timespec(std::max(time, Duration(1)));  // zero would stop it
  ::timerfd_settime(timer_.get(), 0, &until, nullptr);
}

}  // namespace hvd::runtime
