// Every collective, over a mesh, of either transport: its connections and messages; the algorithms
// are ours (algorithms.h, ring.h, hierarchy.h, adasum.h). An exception of Gloo becomes a Status
// here. One object of each kind per world; each shares the mesh and the host's memory, and aborting
// one aborts both.
//
// A process set uses the connections of the world with slots of its own (peers.h): there is nothing
// to make for it and nothing to keep.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "runtime/core/link_speed.h"
#include "runtime/ops/operation.h"
#include "runtime/shm/shm_group.h"
#include "runtime/transport/mesh.h"

namespace hvd::runtime {

struct GlooOperationOptions {
  std::chrono::milliseconds timeout;  // silence of a peer in the middle of its data
  // All that a batch moves, up to which the algorithms of few steps are used; beyond it the rings,
  // or, of an allreduce between hosts, what suits their links (algorithm_choice.h).
  // For allreduce and reducescatter; medians in us, on two cores, few steps and ring:
  //
  //     bytes    2 processes    4 processes
  //     4 KB       111    161    2,362  4,087
  //     64 KB      196    210    2,010  3,841
  //     256 KB     522    491    2,064  4,183
  //     1 MB     1,887  1,357    3,459  3,351
  std::size_t few_steps_bytes = std::size_t{256} << 10;
  // For allgather, the bytes of the output, which all send to all.
  std::size_t direct_bytes = std::size_t{64} << 10;
  // Tensors of a batch that are larger are not packed, but travel from where they lie.
  std::size_t packed_bytes = std::size_t{64} << 10;
  // A number of its host for each of the world's ranks: for Response::hierarchical, which is
  // ignored without them.
  std::vector<int> hosts = {};
  // The memory that the ranks of this host share, for what goes by hosts; null: they send messages.
  std::shared_ptr<ShmGroup> host = nullptr;
  // On rank 0: told of transfers between hosts.
  std::shared_ptr<LinkMeter> links = nullptr;
};

// In the order of their priority. For sets of any size, also of one rank.
std::vector<std::unique_ptr<Operation>> make_gloo_operations(const std::shared_ptr<Mesh>& mesh,
                                                             const GlooOperationOptions& options);

}  // namespace hvd::runtime
