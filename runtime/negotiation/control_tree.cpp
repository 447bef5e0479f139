#include "runtime/negotiation/control_tree.h"

#include <unordered_map>

#include "base/text.h"

namespace hvd::runtime {

ControlTree::ControlTree(std::vector<std::string> hosts, std::vector<std::string> workers)
    : hosts_(std::move(hosts)),
      workers_(std::move(workers)),
      parents_(hosts_.size(), -1),
      children_(hosts_.size()),
      subtrees_(hosts_.size()) {
  std::vector<std::vector<int>> by_host;  // in the order of the leaders
  std::unordered_map<std::string, std::size_t> known;
  for (int rank = 0; rank < size(); ++rank) {
    const auto [found, is_new] = known.emplace(host(rank), by_host.size());
    if (is_new) by_host.emplace_back();
    by_host[found->second].push_back(rank);
  }
  std::vector<int> leaders;
  leaders.reserve(by_host.size());
  for (const auto& ranks : by_host) {
    connect(ranks);
    leaders.push_back(ranks.front());
  }
  connect(leaders);
  // A parent has a lower rank than its children.
  for (int rank = size() - 1; rank >= 0; --rank) {
    auto& subtree = subtrees_[index(rank)];
    subtree.insert(static_cast<RankSet::Value>(rank));
    if (rank > 0) subtrees_[index(parent(rank))].unite(subtree);
  }
}

void ControlTree::connect(const std::vector<int>& ranks) {
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    const int above = ranks[(i - 1) / kFanOut];
    parents_[index(ranks[i])] = above;
    children_[index(above)].push_back(ranks[i]);
  }
}

std::string ControlTree::describe(int rank) const {
  return cat("rank ", rank, " on ", workers_.empty() ? host(rank) : workers_[index(rank)]);
}

}  // namespace hvd::runtime
