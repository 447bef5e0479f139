// Collectives over Peers other than the ring: few steps for little data, trees, and all to
// all. P ranks, n bytes of each. Each needs peers.size() of at least 2, and the same sizes on
// all ranks.
//
// These are ours, not Gloo's: Gloo's ring waits between its steps, which costs 6 ms for 4 KB at
// four processes on two cores, its other algorithms want powers of two, one buffer, or counts that
// fit into an int; its transport is what travels underneath.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/core/arithmetic.h"
#include "runtime/ops/fusion_buffer.h"
#include "runtime/ops/peers.h"

namespace hvd::runtime {

// `data` becomes the reduced data of all. Recursive doubling (R. Thakur, R. Rabenseifner and W.
// Gropp, "Optimization of collective communication operations in MPICH", 2005): log2 P steps of n
// bytes; ranks beyond the last power of two give theirs to a partner first and get the result from
// it, two steps more. The lower rank's element is always the left operand, so that all ranks have
// the same bits.
void doubling_allreduce(const Peers& peers, void* data, std::size_t elements,
                        std::size_t element_size, ReduceFunction reduce, FusionBuffer& scratch);

// Every rank ends up with the root's data. A binomial tree, cut into pieces that are passed on as
// they arrive: n bytes through log2 P hops, the root sends log2 P times n.
void tree_broadcast(const Peers& peers, void* data, std::size_t bytes, int root);

// No rank returns before all have come. Dissemination (D. Hensgen, R. Finkel and U. Manber, "Two
// algorithms for barrier synchronization", 1988): log2 P steps of one byte.
void barrier(const Peers& peers);

// Memory of messages to or from one rank.
struct Extent {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};
// Every rank sends sends[r] to rank r and receives receives[r] from it, one step of P - 1 messages;
// what goes from a rank to itself is copied. No extents that overlap.
void exchange(const Peers& peers, std::span<const Extent> sends, std::span<const Extent> receives);
// The same with one extent for all: all of them end up, in the order of the ranks, in receives.
void gather_all(const Peers& peers, Extent own, std::span<const Extent> receives);

}  // namespace hvd::runtime
