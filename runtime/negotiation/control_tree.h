// The topology of the control plane: the members of a world as a tree, rank 0 its root. The ranks
// of one host form a tree below their leader, the lowest of them, and the leaders form a tree below
// rank 0; in both a node has at most kFanOut children. So the requests of a host's ranks are
// combined on the host, no rank has more than 2 * kFanOut children however large the world is, and
// the depth grows with the logarithm of its size.
//
// A value, computed from the members' hosts alone: every rank computes the same tree. It also knows
// the members' names, for messages.
#pragma once

#include <string>
#include <vector>

#include "runtime/negotiation/interval_set.h"

namespace hvd::runtime {

class ControlTree {
 public:
  static constexpr std::size_t kFanOut = 4;

  // hosts[rank], at least one. workers[rank] is "host#slot"; empty: a rank is named by its host.
  explicit ControlTree(std::vector<std::string> hosts, std::vector<std::string> workers = {});

  int size() const { return static_cast<int>(hosts_.size()); }
  const std::string& host(int rank) const { return hosts_[index(rank)]; }
  int parent(int rank) const { return parents_[index(rank)]; }  // -1 of rank 0
  const std::vector<int>& children(int rank) const { return children_[index(rank)]; }
  // The rank and all below it.
  const RankSet& subtree(int rank) const { return subtrees_[index(rank)]; }
  std::string describe(int rank) const;  // "rank 3 on b#1"

 private:
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  void connect(const std::vector<int>& ranks);

  std::vector<std::string> hosts_;
  std::vector<std::string> workers_;
  std::vector<int> parents_;
  std::vector<std::vector<int>> children_;
  std::vector<RankSet> subtrees_;
};

}  // namespace hvd::runtime
