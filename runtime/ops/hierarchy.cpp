#include "runtime/ops/hierarchy.h"

#include <algorithm>
#include <map>

#include "runtime/ops/algorithms.h"

namespace hvd::runtime {
namespace {

// Puts the parts of `more` behind those of `block`, as the ranks of one host pass them on in one
// lane.
void append(Block& block, const Block& more) {
  block.insert(block.end(), more.begin(), more.end());
}

}  // namespace

bool HostPlan::useful() const {
  return hosts.size() > 1 && std::any_of(hosts.begin(), hosts.end(),
                                         [](const auto& ranks) { return ranks.size() > 1; });
}

std::vector<int> HostPlan::lane() const {
  std::vector<int> ranks;
  ranks.reserve(hosts.size());
  for (const auto& node_peers : hosts) ranks.push_back(node_peers[static_cast<std::size_t>(local)]);
  return ranks;
}

HostPlan host_plan(std::span<const int> ranks, int rank, std::span<const int> host_of) {
  HostPlan plan;
  std::map<int, std::size_t> index_of;
  for (std::size_t position = 0; position < ranks.size(); ++position) {
    const int host = host_of[static_cast<std::size_t>(ranks[position])];
    const auto [found, is_new] = index_of.emplace(host, plan.hosts.size());
    if (is_new) plan.hosts.emplace_back();
    auto& node_peers = plan.hosts[found->second];
    if (static_cast<int>(position) == rank) {
      plan.host = static_cast<int>(found->second);
      plan.local = static_cast<int>(node_peers.size());
    }
    node_peers.push_back(static_cast<int>(position));
  }
  std::size_t smallest = ranks.size();
  for (const auto& node_peers : plan.hosts) smallest = std::min(smallest, node_peers.size());
  plan.lanes = static_cast<int>(smallest);
  return plan;
}

void hierarchical_allreduce(const Peers& peers, const HostPlan& plan, NodePeers& node_peers,
                            const std::vector<Part>& parts, const Reduction& reduction,
                            const BlocksAllreduce& between_hosts, FusionBuffer& scratch) {
  const bool alone = plan.node_peers().size() == 1;
  auto lanes = cut_into_blocks(parts, reduction.element_size, plan.lanes);
  lanes.resize(plan.node_peers().size());  // those without a lane have none
  if (!alone) node_peers.reduce(lanes, {reduction.reduce, reduction.element_size, {}});
  if (plan.has_lane()) {
    Block own = lanes[static_cast<std::size_t>(plan.local)];
    if (!alone) {
      for (auto& part : own) part.input = part.result;
    }
    const Peers lane = peers.part(plan.lane());
    between_hosts(lane, cut_into_blocks(own, reduction.element_size, lane.size()), reduction,
                  scratch);
  }
  if (!alone) node_peers.gather(lanes);
}

void leaders_allreduce(const Peers& peers, const HostPlan& plan, NodePeers& node_peers, void* data,
                       std::size_t elements, std::size_t element_size, ReduceFunction reduce,
                       FusionBuffer& scratch) {
  const bool alone = plan.node_peers().size() == 1;
  if (!alone) node_peers.reduce_to_first(data, elements, element_size, reduce);
  if (plan.local == 0) {
    doubling_allreduce(peers.part(plan.lane()), data, elements, element_size, reduce, scratch);
  }
  if (!alone) node_peers.broadcast_from_first(data, elements * element_size);
}

void hierarchical_allgather(const Peers& peers, const HostPlan& plan, NodePeers& node_peers,
                            const std::vector<Block>& blocks,
                            const BlocksAllgather& between_hosts) {
  const bool alone = plan.node_peers().size() == 1;
  const auto block_of = [&blocks](int rank) -> const Block& {
    return blocks[static_cast<std::size_t>(rank)];
  };
  if (!alone) {
    std::vector<Block> of_mates;
    for (const int rank : plan.node_peers()) of_mates.push_back(block_of(rank));
    node_peers.gather(of_mates);
  }
  std::vector<std::vector<Block>> lanes;  // of each host
  for (const auto& ranks : plan.hosts) {
    Block whole;
    for (const int rank : ranks) append(whole, block_of(rank));
    lanes.push_back(cut_into_blocks(whole, 1, plan.lanes));
  }
  if (plan.has_lane()) {
    std::vector<Block> of_hosts;
    for (const auto& host : lanes) of_hosts.push_back(host[static_cast<std::size_t>(plan.local)]);
    between_hosts(peers.part(plan.lane()), of_hosts);
  }
  if (alone) return;
  std::vector<Block> from_elsewhere(plan.node_peers().size());
  for (std::size_t host = 0; host < lanes.size(); ++host) {
    if (static_cast<int>(host) == plan.host) continue;
    for (std::size_t lane = 0; lane < lanes[host].size(); ++lane) {
      append(from_elsewhere[lane], lanes[host][lane]);
    }
  }
  node_peers.gather(from_elsewhere);
}

}  // namespace hvd::runtime
