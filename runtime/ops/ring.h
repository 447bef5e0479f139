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
//
// The data need not lie in one extent of memory: a block is a list of parts, wherever they are. So
// tensors of one batch that are large are sent from and received where they lie, without being
// copied into a fusion buffer and back.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "runtime/core/arithmetic.h"
#include "runtime/ops/fusion_buffer.h"
#include "runtime/ops/peers.h"

namespace hvd::runtime {

// One extent of a block: where this rank's own elements are, and where what was made of them goes.
// They may be the same memory.
struct Part {
  const std::byte* input = nullptr;  // allgather: unused
  std::byte* result = nullptr;
  std::size_t bytes = 0;
};
// Rank b ends up with the reduced block b, or began with it (allgather). On all ranks a block has
// as many parts, of the same sizes.
using Block = std::vector<Part>;
// Cuts what the parts hold, one after another, into blocks of nearly the same size.
std::vector<Block> cut_into_blocks(const std::vector<Part>& parts, std::size_t element_size,
                                   int blocks);

struct Reduction {
  ReduceFunction reduce = nullptr;
  std::size_t element_size = 1;
  // Applied to what is reduced completely, once, by the rank whose block it is; may be empty.
  std::function<void(void* data, std::size_t elements)> finish = {};
};

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
