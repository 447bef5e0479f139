#include "base/pipe.h"

#include <array>
#include <cerrno>
#include <fcntl.h>

namespace hvd {

Result<Pipe> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return Status::from_errno("make a pipe", errno);
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

}  // namespace hvd
