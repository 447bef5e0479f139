#include <cerrno>
#include <fcntl.h>
#include <functional>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "base/descriptors.h"
#include "base/machine/life_lock.h"
#include "base/socket.h"

namespace hvd {
namespace {

// The exit code of `act` in a child whose standard streams are closed.
int without_streams(const std::function<int()>& act) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (const int fd : {0, 1, 2}) ::close(fd);
    ::_exit(act());
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  return WEXITSTATUS(status);
}

bool streams_are_closed() {
  for (const int fd : {0, 1, 2}) {
    if (::fcntl(fd, F_GETFD) >= 0) return false;
  }
  return true;
}

bool is_moved(const UniqueFd& fd) {
  return fd.get() > STDERR_FILENO && (::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC) != 0;
}

TEST(UniqueFd, LeavesTheNumbersOfClosedStandardStreamsFree) {
  const int code = without_streams([] {
    const auto sockets = socket_pair();
    if (!sockets.ok() || !is_moved(sockets->first) || !is_moved(sockets->second)) return 1;
    const auto pipe = make_pipe();
    if (!pipe.ok() || !is_moved(pipe->read_end) || !is_moved(pipe->write_end)) return 2;
    UniqueFd event;
    event.reset(::eventfd(0, EFD_CLOEXEC));
    if (!is_moved(event)) return 3;
    const auto lock = LifeLock::make();
    if (!lock.ok() || !is_moved(lock->duplicate())) return 4;
    return streams_are_closed() ? 0 : 5;
  });
  EXPECT_EQ(code, 0);
}

TEST(UniqueFd, IsTheSameSocketAfterItsMove) {
  const int code = without_streams([] {
    const auto sockets = socket_pair();
    char byte = 'x';
    if (::send(sockets->first.get(), &byte, 1, MSG_NOSIGNAL) != 1) return 1;
    if (::recv(sockets->second.get(), &byte, 1, 0) != 1 || byte != 'x') return 2;
    return 0;
  });
  EXPECT_EQ(code, 0);
}

TEST(UniqueFd, OwnsNothingWhereNoHigherNumberIsFree) {
  const int code = without_streams([] {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 4;
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return 1;
    const int low = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (low != 0 || ::dup2(low, 3) != 3) return 2;
    const UniqueFd none(low);
    if (none || errno != EMFILE) return 3;
    return streams_are_closed() ? 0 : 4;
  });
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace hvd
