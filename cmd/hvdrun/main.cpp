#include <csignal>
#include <fcntl.h>
#include <string>
#include <unistd.h>
#include <vector>

#include "cmd/hvdrun/hvdrun.h"
#include "cmd/hvdrun/init_process.h"

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

}  // namespace

int main(int argc, char** argv) {
  keep_standard_streams();
  set_signals();
  hvd::cli::leave_process_one();
  return hvd::cli::run_hvdrun(std::vector<std::string>(argv + 1, argv + argc));
}
