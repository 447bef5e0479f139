#include "driver/ssh/patience.h"

#include <cerrno>
#include <cstdint>
#include <sys/eventfd.h>
#include <utility>
#include <vector>

#include "driver/ssh/small_thread.h"

namespace hvd::driver::ssh {

Signal::Signal() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void Signal::raise() const {
  const std::uint64_t one = 1;
  // It can only fail when the counter is full, which means that it was raised.
  if (::write(fd_.get(), &one, sizeof one) < 0) return;
}

bool Signal::raised() const {
  pollfd fd{.fd = fd_.get(), .events = POLLIN, .revents = 0};
  return ::poll(&fd, 1, 0) > 0;
}

Status Patience::left() const {
  if (given_up != nullptr && given_up->raised()) return {Code::aborted, "given up"};
  if (Clock::now() >= deadline) return {Code::deadline_exceeded, "timed out"};
  return {};
}

Status Patience::poll(std::span<pollfd> fds, TimePoint at_most) const {
  std::vector<pollfd> all(fds.begin(), fds.end());
  if (given_up != nullptr) all.push_back({.fd = given_up->fd(), .events = POLLIN, .revents = 0});
  while (true) {
    const TimePoint until = at_most < deadline ? at_most : deadline;
    const int ready = ::poll(all.data(), all.size(), milliseconds_until(until, Clock::now()));
    if (ready < 0 && errno != EINTR) return Status::from_errno("poll", errno);
    if (ready < 0) continue;
    if (given_up != nullptr && all.back().revents != 0) return {Code::aborted, "given up"};
    for (std::size_t i = 0; i < fds.size(); ++i) fds[i].revents = all[i].revents;
    if (ready > 0 || Clock::now() >= at_most) return {};
    if (Clock::now() >= deadline) return {Code::deadline_exceeded, "timed out"};
  }
}

Status Patience::wait_for(int fd, short events) const {
  pollfd one{.fd = fd, .events = events, .revents = 0};
  return poll({&one, 1});
}

Status run_apart(const Patience& patience, std::function<void()> work) {
  const auto done = std::make_shared<Signal>();
  HVD_RETURN_IF_ERROR(start_small_thread([done, work = std::move(work)] {
    work();
    done->raise();
  }));
  return patience.wait_for(done->fd(), POLLIN);
}

}  // namespace hvd::driver::ssh
