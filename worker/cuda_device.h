// Which GPU a worker takes. Pure.
#pragma once

#include "base/status.h"

namespace hvd::worker {

// `devices`: those that its process can use, of which there is at least one.
Result<int> device_of(int local_rank, int local_size, int devices);

}  // namespace hvd::worker
