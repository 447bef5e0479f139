// The tree along which shards are added, and the parts of it that the ranks of a world compute by
// themselves. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include <hvd/shards.h>

#include "runtime/core/sum_tree.h"

namespace hvd::worker {

// A subtree, by the shards below it.
using Subtree = ShardRange;

// Where a subtree of at least two shards is split: the left one has the largest power of two of
// them that is less than all.
int split_of(const Subtree& tree);

// The other subtree of the same parent; nothing: `tree` is the whole tree.
std::optional<Subtree> sibling_of(int shards, const Subtree& tree);
Subtree parent_of(const Subtree& left_or_right, const Subtree& sibling);

// The largest subtrees of the tree over `shards` in which all shards are of these, in their order:
// what a rank with these shards can add up by itself.
std::vector<Subtree> subtrees_of(int shards, const std::vector<ShardRange>& some);

// The additions that make the whole tree of subtrees which lie beside each other and are all of it.
// They are the same numbers that are added whatever the subtrees are.
std::vector<runtime::Addition> additions_of(const Subtree& tree, const std::vector<Subtree>& parts);

// Who has which shards of a step, by rank, and who is still to compute which.
struct Allotment {
  std::vector<std::vector<Subtree>> kept;  // subtrees whose sum a rank has
  std::vector<std::vector<int>> missing;   // shards that a rank is to compute, ascending
};
// `claims` are the subtrees that the ranks say they have, by rank; of those that overlap the first
// counts. As many of the other shards are missing on each rank, or one more; if nobody has any,
// they are shards_of(). Subtrees that the tree has not are left out.
Allotment allot(int shards, const std::vector<std::vector<Subtree>>& claims);

}  // namespace hvd::worker
