// Allreduce by halving and doubling: ranks exchange half of the data with a partner, then half of
// that half with another one, until each has reduced one block; the way back gathers the blocks.
// Each rank sends, and receives,
//
//     reduce-scatter   (P - 1) / P * n bytes in log2 P steps
//     allgather        (P - 1) / P * n bytes in log2 P steps
//
// of n bytes: as few bytes as in the ring (ring.h), and far fewer steps. It is for networks whose
// latency counts. R. Thakur, R. Rabenseifner and W. Gropp, "Optimization of collective
// communication operations in MPICH", 2005.
#pragma once

#include <vector>

#include "runtime/ops/blocks.h"
#include "runtime/ops/fusion_buffer.h"
#include "runtime/ops/peers.h"

namespace hvd::runtime {

// Halving needs a power of two, and at least two ranks.
bool can_halve(int ranks);

// `blocks` has an element for each of peers.size() ranks; `scratch` is used for what arrives.
// Afterwards all results hold the reduced elements.
void halving_allreduce(const Peers& peers, const std::vector<Block>& blocks,
                       const Reduction& reduction, FusionBuffer& scratch);

}  // namespace hvd::runtime
