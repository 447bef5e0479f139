// Blocks that go straight from the rank that has them to the one that needs them. Each rank sends,
// and receives,
//
//     reduce-scatter   (P - 1) / P * n bytes in one step
//     allgather        (P - 1) / P * n bytes in one step
//
// of n bytes: as few bytes as in the ring (ring.h), in as few steps as there can be, for any number
// of ranks. But each rank receives from all others at the same time. It is for few ranks and for
// networks whose latency counts. It is the "spread-out" exchange of R. Thakur, R. Rabenseifner and
// W. Gropp, "Optimization of collective communication operations in MPICH", 2005.
#pragma once

#include <vector>

#include "runtime/ops/blocks.h"
#include "runtime/ops/fusion_buffer.h"
#include "runtime/ops/peers.h"

namespace hvd::runtime {

// `blocks` has an element for each of peers.size() ranks, at least 2. `scratch` is used for what
// arrives to be reduced: P - 1 times the own block.
//
// Afterwards all results hold the reduced elements.
void direct_allreduce(const Peers& peers, const std::vector<Block>& blocks,
                      const Reduction& reduction, FusionBuffer& scratch);
// Afterwards the results of the own block do; those of the others are as they were.
void direct_reduce_scatter(const Peers& peers, const std::vector<Block>& blocks,
                           const Reduction& reduction, FusionBuffer& scratch);
// The results of the own block are sent; all others are received.
void direct_allgather(const Peers& peers, const std::vector<Block>& blocks);

}  // namespace hvd::runtime
