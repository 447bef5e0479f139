// The ring: every rank sends to the next one only, and each piece that arrives is worked on and
// passed on at once, while the next one is under way. Each rank sends, and receives,
//
//     reduce-scatter   (P - 1) / P * n bytes in P - 1 steps
//     allgather        (P - 1) / P * n bytes in P - 1 steps
//     allreduce        2 (P - 1) / P * n bytes in 2 (P - 1) steps, which is the least possible
//
// of n bytes in all: P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for
// clusters of workstations", 2009. Cutting the blocks into pieces and not waiting between the two
// halves of an allreduce is what hides the latency of the steps, as pipelined broadcasts do it.
#pragma once

#include <vector>

#include "runtime/ops/blocks.h"
#include "runtime/ops/fusion_buffer.h"
#include "runtime/ops/peers.h"

namespace hvd::runtime {

// `blocks` has an element for each of peers.size() ranks, at least 2; `scratch` is used for what
// arrives.
//
// Afterwards all results hold the reduced elements.
void ring_allreduce(const Peers& peers, const std::vector<Block>& blocks,
                    const Reduction& reduction, FusionBuffer& scratch);
// Afterwards the results of the own block do. Those of the other blocks have held something in
// between; they must not be anybody's input.
void ring_reduce_scatter(const Peers& peers, const std::vector<Block>& blocks,
                         const Reduction& reduction, FusionBuffer& scratch);
// The results of the own block are sent; all others are received.
void ring_allgather(const Peers& peers, const std::vector<Block>& blocks);

}  // namespace hvd::runtime
