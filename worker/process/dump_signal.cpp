#include "worker/process/dump_signal.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/descriptors.h"

namespace hvd::worker {
namespace {

std::atomic<int> dump_descriptor{-1};
std::atomic<pid_t> dump_owner{-1};

// A forked child has the handler and the descriptor, but no world.
void on_dump_signal(int /*number*/) {
  const int error = errno;
  if (::getpid() == dump_owner) {
    const std::uint64_t once = 1;
    [[maybe_unused]] const auto put = ::write(dump_descriptor, &once, sizeof(once));
  }
  errno = error;
}

int install_dump_handler() {
  struct sigaction before {};
  if (::sigaction(SIGUSR1, nullptr, &before) != 0) return -1;
  if ((before.sa_flags & SA_SIGINFO) != 0 || before.sa_handler != SIG_DFL) return -1;
  dump_descriptor = UniqueFd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)).release();
  if (dump_descriptor < 0) return -1;
  dump_owner = ::getpid();
  struct sigaction ours {};
  ours.sa_handler = on_dump_signal;
  ours.sa_flags = SA_RESTART;
  sigemptyset(&ours.sa_mask);
  return ::sigaction(SIGUSR1, &ours, nullptr) == 0 ? dump_descriptor.load() : -1;
}

}  // namespace

int listen_for_dump_signal() {
  static const int installed = install_dump_handler();
  return installed;
}

}  // namespace hvd::worker
