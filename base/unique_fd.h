// Owns one file descriptor and closes it. Movable, not copyable.
//
// The numbers 0 to 2 belong to the program: it prints there, even if it has closed its standard
// streams, and its output must not get into a connection of hvd or into shared memory. A descriptor
// that the kernel has put there is moved to a higher number.
#pragma once

#include <unistd.h>
#include <utility>

namespace hvd {

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

}  // namespace hvd
