// Shards, their random numbers and the tree along which they are added, for every number of shards
// and of ranks.
#include "worker/shards/tree.h"

#include <gtest/gtest.h>
#include <numeric>
#include <set>
#include <string>

#include <hvd/error.h>

#include "base/text.h"

namespace hvd::worker {
namespace {

constexpr int kMostShards = 64;
constexpr int kMostRanks = 17;

// The sum as a text that shows its tree.
std::string whole_tree(const Subtree& tree) {
  if (tree.size() == 1) return cat(tree.first);
  const int middle = split_of(tree);
  return cat("(", whole_tree({tree.first, middle}), "+", whole_tree({middle, tree.last}), ")");
}

// As a rank does it, shard by shard.
std::vector<std::string> sums_of(int shards, const ShardRange& range) {
  std::vector<std::string> sums;
  for (const int shard : range) {
    sums.push_back(cat(shard));
    for (int merges = merges_after({0, shards}, range, shard); merges > 0; --merges) {
      const std::string right = sums.back();
      sums.pop_back();
      sums.back() = cat("(", sums.back(), "+", right, ")");
    }
  }
  return sums;
}

TEST(ShardTree, IsTheSameInEveryWorld) {
  for (int shards = 1; shards <= kMostShards; ++shards) {
    const std::string expected = whole_tree({0, shards});
    for (int size = 1; size <= kMostRanks; ++size) {
      std::vector<std::string> sums;
      std::vector<Subtree> parts;
      for (int rank = 0; rank < size; ++rank) {
        const auto range = shards_of(shards, rank, size);
        const auto own = subtrees_within(shards, range);
        const auto some = sums_of(shards, range);
        ASSERT_EQ(some.size(), own.size()) << shards << " shards, rank " << rank << " of " << size;
        parts.insert(parts.end(), own.begin(), own.end());
        sums.insert(sums.end(), some.begin(), some.end());
      }
      for (const auto& [left, right] : additions_of({0, shards}, parts)) {
        sums[left] = cat("(", sums[left], "+", sums[right], ")");
      }
      ASSERT_EQ(sums[0], expected) << shards << " shards, " << size << " ranks";
    }
  }
}

TEST(ShardRanges, AreAllShardsAndNoRankHasMoreThanItsPart) {
  for (int shards = 1; shards <= kMostShards; ++shards) {
    for (int size = 1; size <= kMostRanks; ++size) {
      int next = 0;
      for (int rank = 0; rank < size; ++rank) {
        const auto range = shards_of(shards, rank, size);
        ASSERT_EQ(range.first, next);
        ASSERT_LE(range.size(), (shards + size - 1) / size) << shards << " over " << size;
        next = range.last;
      }
      ASSERT_EQ(next, shards) << "over " << size << " ranks";
    }
  }
}

TEST(ShardRanges, OfAPowerOfTwoAreOneSubtreeEach) {
  for (int shards = 1; shards <= kMostShards; shards *= 2) {
    for (int size = 1; size <= shards; size *= 2) {
      for (int rank = 0; rank < size; ++rank) {
        EXPECT_EQ(subtrees_within(shards, shards_of(shards, rank, size)).size(), 1U);
      }
    }
  }
}

TEST(ShardRanges, CutFewSubtreesInTheOtherWorlds) {
  const auto subtrees = [](int shards, int size) {
    std::size_t all = 0;
    for (int rank = 0; rank < size; ++rank) {
      all += subtrees_within(shards, shards_of(shards, rank, size)).size();
    }
    return all;
  };
  EXPECT_EQ(subtrees(16, 3), 5U);
  EXPECT_EQ(subtrees(16, 5), 4U);
  EXPECT_EQ(shards_of(16, 4, 5), (ShardRange{16, 16})) << "one rank has none";
}

TEST(ShardRanges, OfWhatCannotBeAreErrors) {
  EXPECT_THROW(shards_of(0, 0, 1), InvalidArgumentError);
  EXPECT_THROW(shards_of(kMaxShards + 1, 0, 1), InvalidArgumentError);
  EXPECT_THROW(shards_of(4, 2, 2), InvalidArgumentError);
  EXPECT_THROW(shards_of(4, -1, 2), InvalidArgumentError);
}

// The known answers of Random123, "philox4x32 10".
TEST(ShardRandomNumbers, AreThoseOfPhilox) {
  ShardRandom zeros(0, 0, 0);
  for (const std::uint32_t expected : {0x6627e8d5U, 0xe169c58dU, 0xbc57ac4cU, 0x9b00dbd8U}) {
    EXPECT_EQ(zeros(), expected);
  }
  EXPECT_EQ(zeros(), ([] {
              ShardRandom again(0, 0, 0);
              for (int i = 0; i < 4; ++i) again();
              return again();
            })());
}

TEST(ShardRandomNumbers, DifferBetweenSeedsShardsAndSteps) {
  std::set<std::uint32_t> seen;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    for (int shard = 0; shard < 16; ++shard) {
      for (std::uint64_t step = 0; step < 16; ++step) seen.insert(ShardRandom(seed, shard, step)());
    }
  }
  EXPECT_EQ(seen.size(), 4U * 16 * 16);
}

TEST(ShardRandomNumbers, AreSpreadEvenly) {
  ShardRandom random(1, 2, 3);
  double sum = 0;
  for (int i = 0; i < 10'000; ++i) {
    const float one = random.uniform();
    ASSERT_GE(one, 0.0F);
    ASSERT_LT(one, 1.0F);
    sum += one;
  }
  EXPECT_NEAR(sum / 10'000, 0.5, 0.02);
}

}  // namespace
}  // namespace hvd::worker
