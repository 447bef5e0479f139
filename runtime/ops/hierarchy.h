// Collectives that know which ranks share a host: inside a host first, then between hosts, then
// inside again. Data that crosses from host to host does so once, in log2 or H - 1 steps of H hosts
// and not of P ranks; the steps inside a host are short.
//
// The smallest host has as many ranks as there are lanes: rank j of each host, for j below that,
// carries the j-th part of what goes between hosts, so hosts of any and of different sizes do.
// Further ranks of larger hosts help inside their host only.
//
//     reduce-scatter inside    each lane's part is reduced by its rank
//     allreduce of each lane   between the hosts: 2 (H - 1) / H * n bytes leave a host, of n
//     allgather inside
//
// On processors this is what is elsewhere called a torus: rings along both axes, hosts and slots.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "runtime/core/arithmetic.h"
#include "runtime/ops/blocks.h"
#include "runtime/ops/fusion_buffer.h"
#include "runtime/ops/node_peers.h"
#include "runtime/ops/peers.h"

namespace hvd::runtime {

// Where the ranks that take part in one operation are. A value; every rank comes to the same, but
// for what is its own.
struct HostPlan {
  std::vector<std::vector<int>> hosts;  // positions in a Peers, by host, ascending
  int host = 0;                         // own; index of `hosts`
  int local = 0;                        // own position on it
  int lanes = 1;

  // With one host, or one rank on each, there is nothing to gain.
  bool useful() const;
  const std::vector<int>& node_peers() const { return hosts[static_cast<std::size_t>(host)]; }
  bool has_lane() const { return local < lanes; }
  // The own lane's ranks, one of each host.
  std::vector<int> lane() const;
};

// `ranks`: those of the world that take part; `rank`: the own position among them; host_of[r]: a
// number of the host of the world's rank r.
HostPlan host_plan(std::span<const int> ranks, int rank, std::span<const int> host_of);

// An allreduce of blocks, one for each rank: ring_allreduce(), for example.
using BlocksAllreduce = std::function<void(const Peers& peers, const std::vector<Block>& blocks,
                                           const Reduction& reduction, FusionBuffer& scratch)>;
// An allgather of blocks: ring_allgather() or direct_allgather().
using BlocksAllgather = std::function<void(const Peers& peers, const std::vector<Block>& blocks)>;

// The plan must be useful; `node_peers`: those of the own host.
//
// Reduces what lies in `parts`; `between_hosts` reduces each lane.
void hierarchical_allreduce(const Peers& peers, const HostPlan& plan, NodePeers& node_peers,
                            const std::vector<Part>& parts, const Reduction& reduction,
                            const BlocksAllreduce& between_hosts, FusionBuffer& scratch);
// The same for little data, as doubling_allreduce(): each rank gives to the first rank of its host,
// those double between each other, and tell their hosts.
void leaders_allreduce(const Peers& peers, const HostPlan& plan, NodePeers& node_peers, void* data,
                       std::size_t elements, std::size_t element_size, ReduceFunction reduce,
                       FusionBuffer& scratch);
// Gathers `blocks`, of all ranks; `between_hosts` gathers each lane.
void hierarchical_allgather(const Peers& peers, const HostPlan& plan, NodePeers& node_peers,
                            const std::vector<Block>& blocks, const BlocksAllgather& between_hosts);

}  // namespace hvd::runtime
