// hvd-agent: started by hvdrun on each host, speaks base/protocol/agent_link.h on standard input
// and output. docs/internals/agent.md says how it works.
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <optional>
#include <string_view>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include <utility>

#include "base/descriptors.h"
#include "base/log.h"
#include "base/machine/machine.h"
#include "base/socket.h"
#include "base/versions.h"
#include "cmd/hvd-agent/supervisor.h"

namespace hvd::agent {
namespace {

// Opens 0, 1 and 2 if they are closed, and closes all other descriptors.
bool tidy_descriptors() {
  for (int fd = ::open("/dev/null", O_RDWR); fd <= STDERR_FILENO;
       fd = ::open("/dev/null", O_RDWR)) {
    if (fd < 0) return false;
  }
  return close_descriptors(STDERR_FILENO + 1);
}

// The link moves away from 0 and 1, where a stray print could damage it.
std::optional<UniqueFd> take_over(int fd) {
  UniqueFd moved(::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!moved || !null || ::dup2(null.get(), fd) < 0) return std::nullopt;
  if (!set_nonblocking(moved.get(), true).ok()) return std::nullopt;
  return moved;
}

UniqueFd take_signals() {
  for (const int number : {SIGPIPE, SIGHUP, SIGTSTP, SIGUSR2}) std::signal(number, SIG_IGN);
  sigset_t ours;
  sigemptyset(&ours);
  for (const int number : {SIGCHLD, SIGTERM, SIGINT, SIGUSR1}) {
    std::signal(number, SIG_DFL);
    sigaddset(&ours, number);
  }
  ::sigprocmask(SIG_SETMASK, &ours, nullptr);
  return UniqueFd(::signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK));
}

int fail(std::string_view what) {
  HVD_LOG(error, Status::from_errno(what, errno).message());
  return 1;
}

int run() {
  LogOptions log;
  log.who = "hvd-agent";
  // NOLINTNEXTLINE(concurrency-mt-unsafe): there is one thread
  if (const char* const level = std::getenv("HVD_LOG_LEVEL")) {
    log.level = parse_log_level(level).value_or(log.level);
  }
  set_log_options(std::move(log));

  if (!tidy_descriptors()) return fail("open /dev/null");
  if (::isatty(STDIN_FILENO) == 1 || ::isatty(STDOUT_FILENO) == 1) {
    std::fputs("hvd-agent is started by hvdrun and cannot be used from a terminal.\n", stderr);
    return 2;
  }
  if (::getsid(0) != ::getpid()) ::setsid();  // Ctrl-C on hvdrun's terminal is for hvdrun
  // The descendants of a killed reaper become children of the agent.
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return fail("become the subreaper (prctl)");

  SupervisorOptions options;
  // The agent needs about five descriptors for each worker.
  options.open_files_of_workers = raise_open_files().value_or(rlimit{});
  auto in = take_over(STDIN_FILENO);
  auto out = take_over(STDOUT_FILENO);
  if (!in || !out) return fail("take over standard input and output");
  options.link_in = std::move(*in);
  options.link_out = std::move(*out);

  options.signals = take_signals();
  if (!options.signals) return fail("take signals (signalfd)");
  auto loop = EventLoop::create();
  if (!loop.ok()) return fail("make an event loop");
  auto board = SharedLease::create();
  if (!board.ok()) return fail("share a page of memory");
  return Supervisor(std::move(*loop), std::move(*board), std::move(options)).run();
}

}  // namespace
}  // namespace hvd::agent

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--version") {
    std::printf("hvd-agent %s\n", hvd::build_id().data());
    return 0;
  }
  if (argc != 1) {
    std::fputs(
        "usage: hvd-agent [--version]\n"
        "hvdrun starts it and sends it commands on standard input.\n",
        stderr);
    return 2;
  }
  return hvd::agent::run();
}
