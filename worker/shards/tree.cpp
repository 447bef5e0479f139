#include "worker/shards/tree.h"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace hvd::worker {

using runtime::Addition;

namespace {

// Whether each shard is one of these.
std::vector<bool> marks_of(int shards, const std::vector<ShardRange>& some) {
  std::vector<bool> marks(static_cast<std::size_t>(shards));
  for (const auto& range : some) {
    for (const int shard : range) marks[static_cast<std::size_t>(shard)] = true;
  }
  return marks;
}

// Appends the largest marked subtrees, and returns whether the tree is one.
bool collect(const Subtree& tree, const std::vector<bool>& marks, std::vector<Subtree>& found) {
  if (tree.size() == 1) {
    const bool marked = marks[static_cast<std::size_t>(tree.first)];
    if (marked) found.push_back(tree);
    return marked;
  }

  const int middle = split_of(tree);
  const bool left = collect({tree.first, middle}, marks, found);
  const bool right = collect({middle, tree.last}, marks, found);
  if (!left || !right) return false;
  found.resize(found.size() - 2);
  found.push_back(tree);
  return true;
}

// Whether the tree over `shards` has this subtree.
bool has(int shards, const Subtree& tree) {
  if (tree.first < 0 || tree.size() < 1 || tree.last > shards) return false;
  Subtree at{0, shards};
  while (at.size() > tree.size()) {
    const int middle = split_of(at);
    at = tree.first < middle ? Subtree{at.first, middle} : Subtree{middle, at.last};
  }
  return at == tree;
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

std::optional<Subtree> sibling_of(int shards, const Subtree& tree) {
  Subtree at{0, shards};
  if (at == tree) return std::nullopt;
  for (;;) {
    const int middle = split_of(at);
    const Subtree left{at.first, middle};
    const Subtree right{middle, at.last};
    if (left == tree) return right;
    if (right == tree) return left;
    at = tree.first < middle ? left : right;
  }
}

Subtree parent_of(const Subtree& left_or_right, const Subtree& sibling) {
  return {std::min(left_or_right.first, sibling.first), std::max(left_or_right.last, sibling.last)};
}

std::vector<Subtree> subtrees_of(int shards, const std::vector<ShardRange>& some) {
  std::vector<Subtree> found;
  collect({0, shards}, marks_of(shards, some), found);
  return found;
}

std::vector<Addition> additions_of(const Subtree& tree, const std::vector<Subtree>& parts) {
  std::vector<Addition> additions;
  std::size_t next = 0;
  add_up(tree, parts, next, additions);
  return additions;
}

Allotment allot(int shards, const std::vector<std::vector<Subtree>>& claims) {
  const int size = static_cast<int>(claims.size());
  std::vector<bool> taken(static_cast<std::size_t>(shards));
  Allotment allotment{std::vector<std::vector<Subtree>>(claims.size()),
                      std::vector<std::vector<int>>(claims.size())};
  for (std::size_t rank = 0; rank < claims.size(); ++rank) {
    for (const auto& claim : claims[rank]) {
      if (!has(shards, claim)) continue;
      const auto first = taken.begin() + claim.first;
      const auto last = taken.begin() + claim.last;
      if (std::find(first, last, true) != last) continue;
      std::fill(first, last, true);
      allotment.kept[rank].push_back(claim);
    }
  }

  std::vector<int> rest;
  for (int shard = 0; shard < shards; ++shard) {
    if (!taken[static_cast<std::size_t>(shard)]) rest.push_back(shard);
  }
  const auto missing = static_cast<std::int64_t>(rest.size());
  for (int rank = 0; rank < size; ++rank) {
    const auto own = missing == shards ? shards_of(shards, rank, size)
                                       : ShardRange{static_cast<int>(missing * rank / size),
                                                    static_cast<int>(missing * (rank + 1) / size)};
    allotment.missing[static_cast<std::size_t>(rank)].assign(rest.begin() + own.first,
                                                             rest.begin() + own.last);
  }
  return allotment;
}

}  // namespace hvd::worker
