// The collectives on tensors of the host over MPI: allreduce, allgather, broadcast, alltoall and
// reducescatter. What they do not do is left to the operations of lower priority: sets of one rank,
// batches while some ranks have joined, adasum, barriers, send_recv, and more than 2 GB at once.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "runtime/ops/mpi_world.h"
#include "runtime/ops/operation.h"

namespace hvd::runtime {

struct MpiOperationOptions {
  // Tensors of a batch that are larger are not packed: MPI reduces them where they lie.
  std::size_t packed_bytes = std::size_t{64} << 10;
};

std::vector<std::unique_ptr<Operation>> make_mpi_operations(const std::shared_ptr<MpiWorld>& world,
                                                            const MpiOperationOptions& options);

}  // namespace hvd::runtime
