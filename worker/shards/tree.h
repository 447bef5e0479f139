// The tree along which shards are added, and the parts of it that the ranks of a world compute by
// themselves. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include <hvd/shards.h>

namespace hvd::worker {

// A subtree, by the shards below it.
using Subtree = ShardRange;

// Where a subtree of at least two shards is split: the left one has the largest power of two of
// them that is less than all.
int split_of(const Subtree& tree);

// The largest subtrees of the tree over `shards` that lie within the range, in their order: what a
// rank with these shards can add up by itself.
std::vector<Subtree> subtrees_within(int shards, const ShardRange& range);

// A rank comes to its shards in ascending order, and keeps the sums of the subtrees that it has so
// far. The number of times that the last two of them become one after this shard.
int merges_after(const Subtree& tree, const ShardRange& range, int shard);

// Adds the subtree `right` to `left`, by their places among subtrees in the order of their shards.
// The sum stands in the place of `left`.
struct Addition {
  std::size_t left = 0;
  std::size_t right = 0;
  friend bool operator==(const Addition&, const Addition&) = default;
};

// The additions that make the whole tree of subtrees which lie beside each other and are all of it.
// They are the same numbers that are added whatever the subtrees are.
std::vector<Addition> additions_of(const Subtree& tree, const std::vector<Subtree>& parts);

}  // namespace hvd::worker
