#include "cmd/hvdrun/init_process.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <optional>
#include <sys/wait.h>
#include <unistd.h>

namespace hvd::cli {
namespace {

// Reaps all that have ended; the exit code if the child is one of them.
std::optional<int> reap(pid_t child) {
  std::optional<int> code;
  int status = 0;
  while (const pid_t ended = ::waitpid(-1, &status, WNOHANG)) {
    if (ended < 0) break;
    if (ended != child) continue;
    code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  return code;
}

// All signals are blocked here, so none is dropped.
[[noreturn]] void serve(pid_t child, const sigset_t& all) {
  for (;;) {
    siginfo_t info{};
    const int number = ::sigwaitinfo(&all, &info);
    if (number == SIGCHLD) {
      if (const auto code = reap(child)) ::_exit(*code);
      continue;
    }

    // The terminal sends its signals to the whole process group, so the child has got them already.
    if (number > 0 && info.si_code != SI_KERNEL) ::kill(child, number);
  }
}

}  // namespace

void leave_process_one() {
  if (::getpid() != 1) return;

  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::sigprocmask(SIG_BLOCK, &all, &before);

  const pid_t child = ::fork();
  if (child > 0) serve(child, all);

  if (child < 0) {
    std::fprintf(stderr,
                 "hvdrun: warning: cannot fork as the first process of a container: %s; orphans "
                 "are not reaped\n",
                 std::strerror(errno));
  }
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace hvd::cli
