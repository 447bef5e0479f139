// A pipe whose ends block, and are closed in programs that this one starts.
#pragma once

#include "base/status.h"
#include "base/unique_fd.h"

namespace hvd {

struct Pipe {
  UniqueFd read_end;
  UniqueFd write_end;
};

Result<Pipe> make_pipe();

}  // namespace hvd
