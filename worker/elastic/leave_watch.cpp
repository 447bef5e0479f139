#include "worker/elastic/leave_watch.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/descriptors.h"
#include "base/log.h"
#include "runtime/core/threads.h"

namespace hvd::worker {
namespace {

// A stop is announced before its signal, but read by another thread.
constexpr std::chrono::milliseconds kAnnouncementGrace{200};

std::atomic<int> told_event{-1};     // an eventfd, which counts the signals; for ever
std::atomic<pid_t> leave_owner{-1};  // a forked child is to end

void on_leave_signal(int number) {
  const int error = errno;
  if (::getpid() == leave_owner) {
    const std::uint64_t once = 1;
    [[maybe_unused]] const auto put = ::write(told_event, &once, sizeof(once));
  } else {
    std::signal(number, SIG_DFL);
    std::raise(number);
  }
  errno = error;
}

bool install_leave_handler() {
  struct sigaction before {};
  if (::sigaction(SIGTERM, nullptr, &before) != 0) return false;
  if ((before.sa_flags & SA_SIGINFO) != 0 || before.sa_handler != SIG_DFL) return false;
  if (told_event < 0) told_event = UniqueFd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)).release();
  if (told_event < 0) return false;
  leave_owner = ::getpid();
  struct sigaction ours {};
  ours.sa_handler = on_leave_signal;
  ours.sa_flags = SA_RESTART;
  sigemptyset(&ours.sa_mask);
  return ::sigaction(SIGTERM, &ours, nullptr) == 0;
}

// Unless the program has set a handler of its own since.
void remove_leave_handler() {
  struct sigaction now {};
  if (::sigaction(SIGTERM, nullptr, &now) != 0 || (now.sa_flags & SA_SIGINFO) != 0) return;
  if (now.sa_handler == on_leave_signal) std::signal(SIGTERM, SIG_DFL);
}

// Whether a signal has come since this was asked before.
bool take_leave_signals() {
  std::uint64_t times = 0;
  return ::read(told_event, &times, sizeof(times)) == sizeof(times);
}

}  // namespace

LeaveWatch::LeaveWatch(AgentChannel& agent)
    : agent_(agent),
      over_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      installed_(install_leave_handler()) {
  if (installed_) thread_ = runtime::start_thread("hvd-leave", [this] { watch(); });
}

LeaveWatch::~LeaveWatch() {
  if (!installed_) return;
  remove_leave_handler();
  const std::uint64_t once = 1;
  [[maybe_unused]] const auto put = ::write(over_.get(), &once, sizeof(once));
  thread_.join();
  // The thread may have ended before it read the last signal.
  if (take_leave_signals()) std::raise(SIGTERM);
}

void LeaveWatch::watch() {
  bool leaves = false;
  for (;;) {
    std::array<pollfd, 2> polled{{{told_event, POLLIN, 0}, {over_.get(), POLLIN, 0}}};
    if (::poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) return;
    if (polled[1].revents != 0) return;
    if (polled[0].revents == 0 || !take_leave_signals()) continue;
    if (agent_.wait_for_stop(Clock::now() + kAnnouncementGrace)) {
      remove_leave_handler();
      ::kill(::getpid(), SIGTERM);
      return;
    }
    if (leaves) continue;
    leaves = true;
    HVD_LOG(info, "SIGTERM: this worker leaves at a commit");
    if (const Status sent = agent_.send_leave(); !sent.ok()) HVD_LOG(warning, sent.to_string());
  }
}

}  // namespace hvd::worker
