// File descriptors: their owner, pipes, closing many at once, and those that tell of the end of a
// child, also on kernels and under filters that lack close_range() (Linux 5.9) or pidfd_open()
// (Linux 5.3).
#pragma once

#include <sys/types.h>
#include <unistd.h>
#include <utility>

#include "base/clock.h"
#include "base/status.h"

namespace hvd {

// Owns one file descriptor and closes it. Movable, not copyable.
//
// The numbers 0 to 2 belong to the program: it prints there, even if it has closed its standard
// streams, and its output must not get into a connection of hvd or into shared memory. A descriptor
// that the kernel has put there is moved to a higher number.
class UniqueFd {
 public:
  UniqueFd() = default;
  // Moves a descriptor from 0, 1 or 2, as above. On failure it is closed, this one owns nothing,
  // and errno says why.
  explicit UniqueFd(int fd) : fd_(above_standard_streams(fd)) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) replace(other.release());
    return *this;
  }
  ~UniqueFd() { replace(-1); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1) { replace(above_standard_streams(fd)); }

 private:
  static int above_standard_streams(int fd) {
    return fd < 0 || fd > STDERR_FILENO ? fd : moved_up(fd);
  }
  static int moved_up(int fd);
  void replace(int fd) {
    if (const int old = std::exchange(fd_, fd); old >= 0) ::close(old);
  }

  int fd_ = -1;
};

// The ends block, and are closed in programs that this one starts.
struct Pipe {
  UniqueFd read_end;
  UniqueFd write_end;
};

Result<Pipe> make_pipe();

// Closes all descriptors from `first` to `last`, both included. Safe in a signal handler and
// between fork() and exec(). False if that cannot be done.
bool close_descriptors(unsigned first, unsigned last = ~0U);

// A descriptor that becomes readable when this child of the process has ended; the child is still
// to be reaped, unless the kernel has done that (where SIGCHLD is ignored). Without pidfd_open() a
// thread waits for it. Not for the child of a fork beside threads.
Result<UniqueFd> watch_child(pid_t child);

// Whether poll() reports one of these events now, or an error or the end of the other side.
bool is_ready(int fd, short events);

// Blocks until this child has ended, or until the deadline; true if it has. It is still to be
// reaped. Safe where watch_child() is not.
bool wait_for_child(pid_t child, TimePoint deadline);

}  // namespace hvd
