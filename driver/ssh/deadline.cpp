#include "driver/ssh/deadline.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <sys/eventfd.h>
#include <utility>
#include <vector>

#include "base/descriptors.h"
#include "base/text.h"
#include "base/threads.h"

namespace hvd::driver::ssh {
namespace {

// A resolver that does not answer keeps its thread, and nothing can end the call. So many of them
// may exist in this process; the launcher itself makes no more than Options::parallel at a time.
constexpr int kMaxCalls = 256;

}  // namespace

EventFlag::EventFlag() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void EventFlag::set() const {
  const std::uint64_t one = 1;
  // It can only fail when the counter is full, which means that the flag is set.
  if (::write(fd_.get(), &one, sizeof one) < 0) return;
}

bool EventFlag::is_set() const { return is_ready(fd_.get(), POLLIN); }

Status Deadline::check() const {
  if (stop != nullptr && stop->is_set()) return {Code::aborted, "given up"};
  if (Clock::now() >= ends()) return {Code::deadline_exceeded, "timed out"};
  return {};
}

Status Deadline::poll(std::span<pollfd> fds, TimePoint at_most) const {
  std::vector<pollfd> all(fds.begin(), fds.end());
  if (stop != nullptr) all.push_back({.fd = stop->fd(), .events = POLLIN, .revents = 0});

  while (true) {
    const TimePoint until = std::min(at_most, ends());
    const int ready = ::poll(all.data(), all.size(), milliseconds_until(until, Clock::now()));
    if (ready < 0 && errno != EINTR) return Status::from_errno("poll", errno);
    if (ready < 0) continue;

    if (stop != nullptr && all.back().revents != 0) return {Code::aborted, "given up"};
    for (std::size_t i = 0; i < fds.size(); ++i) fds[i].revents = all[i].revents;
    if (ready > 0 || Clock::now() >= at_most) return {};
    if (Clock::now() >= ends()) return {Code::deadline_exceeded, "timed out"};
  }
}

Status Deadline::wait_for(int fd, short events) const {
  pollfd one{.fd = fd, .events = events, .revents = 0};
  return poll({&one, 1});
}

Status call_with_deadline(const Deadline& deadline, std::function<void()> work) {
  static std::atomic<int> calls = 0;
  if (calls.fetch_add(1) >= kMaxCalls) {
    --calls;
    return {Code::resource_exhausted, cat(kMaxCalls, " such calls are in progress already")};
  }

  const auto done = std::make_shared<EventFlag>();
  ThreadGroup thread;
  Status started = thread.start([done, work = std::move(work)] {
    work();
    --calls;
    done->set();
  });
  if (!started.ok()) {
    --calls;
    return started;
  }

  Status waited = deadline.wait_for(done->fd(), POLLIN);
  thread.join_until(waited.ok() ? kNever : Clock::now());
  return waited;
}

}  // namespace hvd::driver::ssh
