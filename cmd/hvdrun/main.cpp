#include <fcntl.h>
#include <string>
#include <unistd.h>
#include <vector>

#include "cmd/hvdrun/hvdrun.h"

namespace {

// If a standard stream is closed, the next file or socket would take its number and its bytes. A
// descriptor that can only do the opposite keeps the place and still answers with an error.
void keep_standard_streams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    // The lowest free number is this one.
    if (::open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd) ::_exit(1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  keep_standard_streams();
  return hvd::cli::run_hvdrun(std::vector<std::string>(argv + 1, argv + argc));
}
