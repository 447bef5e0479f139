#include "cmd/hvd-agent/event_loop.h"

#include <array>
#include <cerrno>
#include <sys/epoll.h>
#include <utility>

#include "base/text.h"

namespace hvd::agent {
namespace {

std::uint64_t tag_of(int fd, std::uint32_t serial) {
  return std::uint64_t{serial} << 32 | static_cast<std::uint32_t>(fd);
}

}  // namespace

Watch& Watch::operator=(Watch&& other) noexcept {
  if (this != &other) {
    end();
    loop_ = std::exchange(other.loop_, nullptr);
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void Watch::end() {
  if (loop_ != nullptr) loop_->forget(fd_);
  loop_ = nullptr;
}

Result<std::unique_ptr<EventLoop>> EventLoop::create() {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return Status::from_errno("epoll_create1", errno);
  return std::unique_ptr<EventLoop>(new EventLoop(std::move(epoll)));
}

Result<Watch> EventLoop::watch(int fd, std::uint32_t events, Handler handler) {
  Entry entry{++last_serial_, std::make_shared<Handler>(std::move(handler))};
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag_of(fd, entry.serial);
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return Status::from_errno(cat("watch descriptor ", fd), errno);
  }
  entries_[fd] = std::move(entry);
  return Watch(*this, fd);
}

void EventLoop::change(int fd, std::uint32_t events) {
  const auto found = entries_.find(fd);
  if (found == entries_.end()) return;
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag_of(fd, found->second.serial);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void EventLoop::forget(int fd) {
  if (entries_.erase(fd) != 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

Status EventLoop::wait(TimePoint deadline) {
  std::array<epoll_event, 64> events{};
  const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(),
                                 milliseconds_until(deadline, Clock::now()));
  if (count < 0 && errno != EINTR) return Status::from_errno("epoll_wait", errno);
  for (int i = 0; i < count; ++i) {
    const auto& event = events[static_cast<std::size_t>(i)];
    const int fd = static_cast<int>(event.data.u64 & 0xffffffffU);
    const auto found = entries_.find(fd);
    // An earlier handler of this round may have ended this watch, and even reused the number.
    if (found == entries_.end() || tag_of(fd, found->second.serial) != event.data.u64) continue;
    const auto handler = found->second.handler;  // outlives the call, whatever it ends
    (*handler)(event.events);
  }
  return {};
}

}  // namespace hvd::agent
