#include "runtime/negotiation/control_tree.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

#include "tests/runtime/negotiation/negotiation_tools.h"

namespace hvd::runtime {
namespace {

TEST(ControlTree, RanksOfAHostAreUnderTheirLeaderAndLeadersUnderRankZero) {
  const ControlTree tree({"a", "a", "a", "b", "b", "c"});
  EXPECT_EQ(tree.parent(0), -1);
  EXPECT_EQ(tree.children(0), (std::vector<int>{1, 2, 3, 5}));
  EXPECT_EQ(tree.children(3), std::vector<int>{4});
  EXPECT_EQ(tree.subtree(3), test::ranks({3, 4}));
  EXPECT_EQ(tree.subtree(0), RankSet::range(0, 6));
  EXPECT_EQ(tree.describe(4), "rank 4 on b");
}

TEST(ControlTree, RanksOfOneHostNeedNotBeNeighbours) {
  const ControlTree tree({"a", "b", "a", "b"});
  EXPECT_EQ(tree.parent(2), 0);
  EXPECT_EQ(tree.parent(3), 1);
  EXPECT_EQ(tree.parent(1), 0);
  EXPECT_EQ(tree.subtree(1), test::ranks({1, 3}));
}

TEST(ControlTree, IsNarrowFlatAndWholeWhateverTheSize) {
  for (const int per_host : {1, 3, 8, 100}) {
    for (const int size : {1, 2, 5, 64, 1000, 10'000}) {
      const ControlTree tree(test::hosts(size, per_host));
      ASSERT_EQ(tree.subtree(0), RankSet::range(0, static_cast<RankSet::Value>(size)));
      int deepest = 0;
      std::size_t widest = 0;
      for (int rank = 0; rank < size; ++rank) {
        widest = std::max(widest, tree.children(rank).size());
        std::size_t below = 1;
        for (const int child : tree.children(rank)) {
          ASSERT_EQ(tree.parent(child), rank);
          below += tree.subtree(child).size();
        }
        ASSERT_EQ(tree.subtree(rank).size(), below);  // so no two children share a rank
        int depth = 0;
        for (int above = rank; above != 0; above = tree.parent(above)) {
          ASSERT_LT(tree.parent(above), above);
          ++depth;
        }
        deepest = std::max(deepest, depth);
      }
      EXPECT_LE(widest, 2 * ControlTree::kFanOut);
      // A tree of hosts, and a tree in the last of them; each level of four holds four times more.
      EXPECT_LE(deepest, 2 + 2 * std::ceil(std::log(size + 1) / std::log(4)));
    }
  }
}

}  // namespace
}  // namespace hvd::runtime
