// Collectives of ranks that share a host, straight in the memory that they share (shm/shm_group.h):
// packing is the only copy in, unpacking the only copy out, and each rank reduces its share of
// every chunk from all others' chunks. One object of each kind per world; each shares the ShmGroup,
// and aborting one aborts the group. docs/internals/shared_memory.md has the costs.
//
// Elements are reduced in the order of the ranks, whichever rank does it and in whatever chunk they
// lie: all ranks get the same bits, in every run.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "runtime/ops/operation.h"
#include "runtime/shm/shm_group.h"

namespace hvd::runtime {

struct ShmOperationOptions {
  // An allreduce of up to so many bytes is reduced by every rank, after one sync() instead of two.
  std::size_t direct_bytes = std::size_t{32} << 10;
  // More ranks than these never do that: each would read, and map, the memory of all others.
  int direct_ranks = 64;
};

// In the order of their priority: all that come before Gloo's. Adasum is left to those.
std::vector<std::unique_ptr<Operation>> make_shm_operations(const std::shared_ptr<ShmGroup>& host,
                                                            const ShmOperationOptions& options);

}  // namespace hvd::runtime
