#include "worker/shards/tree.h"

#include <bit>

namespace hvd::worker {
namespace {

void cut(const Subtree& tree, const ShardRange& range, std::vector<Subtree>& found) {
  if (tree.last <= range.first || range.last <= tree.first) return;
  if (range.first <= tree.first && tree.last <= range.last) {
    found.push_back(tree);
    return;
  }

  const int middle = split_of(tree);
  cut({tree.first, middle}, range, found);
  cut({middle, tree.last}, range, found);
}

// Adds up the parts from `next` on that lie in the tree, and returns the place of the sum.
std::size_t add_up(const Subtree& tree, const std::vector<Subtree>& parts, std::size_t& next,
                   std::vector<Addition>& additions) {
  if (parts[next] == tree) return next++;

  const int middle = split_of(tree);
  const auto left = add_up({tree.first, middle}, parts, next, additions);
  const auto right = add_up({middle, tree.last}, parts, next, additions);
  additions.push_back({left, right});
  return left;
}

}  // namespace

int split_of(const Subtree& tree) {
  const auto left = std::bit_floor(static_cast<unsigned>(tree.size() - 1));
  return tree.first + static_cast<int>(left);
}

std::vector<Subtree> subtrees_within(int shards, const ShardRange& range) {
  std::vector<Subtree> found;
  cut({0, shards}, range, found);
  return found;
}

int merges_after(const Subtree& tree, const ShardRange& range, int shard) {
  int merges = 0;
  for (Subtree at = tree; at.size() > 1;) {
    const bool is_own = range.first <= at.first && at.last <= range.last;
    if (is_own && at.last == shard + 1) ++merges;
    const int middle = split_of(at);
    at = shard < middle ? Subtree{at.first, middle} : Subtree{middle, at.last};
  }
  return merges;
}

std::vector<Addition> additions_of(const Subtree& tree, const std::vector<Subtree>& parts) {
  std::vector<Addition> additions;
  std::size_t next = 0;
  add_up(tree, parts, next, additions);
  return additions;
}

}  // namespace hvd::worker
