#include "base/unique_fd.h"

#include <cerrno>
#include <fcntl.h>

namespace hvd {

int UniqueFd::moved_up(int fd) {
  const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  ::close(fd);
  errno = error;
  return moved;
}

}  // namespace hvd
