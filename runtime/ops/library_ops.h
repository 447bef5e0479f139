// The collectives on tensors of the host over a library: allreduce, allgather, broadcast, alltoall
// and reducescatter. What they do not do is left to the operations of lower priority: sets of one
// rank, batches while some ranks have joined, adasum, barriers, send_recv, more than 2 GB at once,
// and what the library does not reduce.
#pragma once

#include <memory>
#include <vector>

#include "runtime/ops/library_world.h"
#include "runtime/ops/operation.h"

namespace hvd::runtime {

std::vector<std::unique_ptr<Operation>> make_library_operations(
    const std::shared_ptr<LibraryWorld>& world);

}  // namespace hvd::runtime
