#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "cmd/hvdrun/hvdrun.h"

namespace {

// If a standard stream is closed, the next file or socket would get its number and its bytes. A
// descriptor opened in the opposite direction takes the number; using it is still an error.
void keep_standard_streams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    // open() returns the lowest free number, which is this one.
    if (::open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd) ::_exit(1);
  }
}

// Some supervisors start programs with the signals blocked for which they themselves wait. Where
// SIGCHLD is ignored the kernel reaps all children, and nobody learns how they have ended.
void set_signals() {
  std::signal(SIGCHLD, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

// ---- hvdrun as the first process of a container (process 1 of its PID namespace) ----

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

// The kernel drops every signal that process 1 does not handle, so SIGTERM would not end a command
// that only waits, and it makes process 1 the parent of all orphans, which stay zombies until they
// are reaped. In process 1 this function therefore forks and returns in the child, which is hvdrun
// as everywhere else. Process 1 itself passes signals on to the child, reaps whatever ends, and
// ends as the child did, with 128 + the signal if a signal killed it.
//
// In any other process it returns at once. To be called before the process has threads.
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

}  // namespace

int main(int argc, char** argv) {
  keep_standard_streams();
  set_signals();
  leave_process_one();
  return hvd::cli::run_hvdrun(std::vector<std::string>(argv + 1, argv + argc));
}
