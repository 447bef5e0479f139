// Shards, their random numbers and the tree along which they are added, for every number of shards
// and of ranks.
#include "worker/shards/tree.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <random>
#include <set>
#include <string>
#include <vector>

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

// The sum over a subtree, as text.
struct Sum {
  Subtree tree;
  std::string text;
};

// As a rank does it that has these sums already, shard by shard.
std::vector<Sum> sums_of(int shards, std::vector<Sum> sums, const std::vector<int>& missing) {
  for (const int shard : missing) {
    Sum sum{{shard, shard + 1}, cat(shard)};
    for (;;) {
      const auto sibling = sibling_of(shards, sum.tree);
      const auto other = std::find_if(sums.begin(), sums.end(),
                                      [&](const Sum& one) { return one.tree == sibling; });
      if (other == sums.end()) break;
      const bool is_left = other->tree.first < sum.tree.first;
      sum.text = is_left ? cat("(", other->text, "+", sum.text, ")")
                         : cat("(", sum.text, "+", other->text, ")");
      sum.tree = parent_of(sum.tree, other->tree);
      sums.erase(other);
    }
    sums.push_back(sum);
  }
  return sums;
}

// As all ranks do it together, from what each of them has.
std::string total_of(int shards, std::vector<Sum> sums) {
  std::sort(sums.begin(), sums.end(),
            [](const Sum& one, const Sum& two) { return one.tree.first < two.tree.first; });
  std::vector<Subtree> trees;
  for (const auto& sum : sums) trees.push_back(sum.tree);
  for (const auto& [left, right] : additions_of({0, shards}, trees)) {
    sums[left].text = cat("(", sums[left].text, "+", sums[right].text, ")");
  }
  return sums[0].text;
}

std::vector<Subtree> subtrees_within(int shards, const ShardRange& range) {
  return subtrees_of(shards, {range});
}

TEST(ShardTree, IsTheSameInEveryWorld) {
  for (int shards = 1; shards <= kMostShards; ++shards) {
    const std::string expected = whole_tree({0, shards});
    for (int size = 1; size <= kMostRanks; ++size) {
      const auto allotment = allot(shards, std::vector<std::vector<Subtree>>(size));
      std::vector<Sum> sums;
      for (int rank = 0; rank < size; ++rank) {
        const auto own = sums_of(shards, {}, allotment.missing[rank]);
        ASSERT_EQ(own.size(), subtrees_within(shards, shards_of(shards, rank, size)).size())
            << shards << " shards, rank " << rank << " of " << size;
        sums.insert(sums.end(), own.begin(), own.end());
      }
      ASSERT_EQ(total_of(shards, sums), expected) << shards << " shards, " << size << " ranks";
    }
  }
}

// Commutes, as additions do, and is not associative.
std::uint64_t combined(std::uint64_t a, std::uint64_t b) { return (a ^ b) * 31 + (a + b) * 7 + 1; }
void combine(void* out, const void* a, const void* b, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    static_cast<std::uint64_t*>(out)[i] =
        combined(static_cast<const std::uint64_t*>(a)[i], static_cast<const std::uint64_t*>(b)[i]);
  }
}
std::uint64_t combined_tree(const Subtree& tree) {
  if (tree.size() == 1) return static_cast<std::uint64_t>(tree.first) + 2;
  const int middle = split_of(tree);
  return combined(combined_tree({tree.first, middle}), combined_tree({middle, tree.last}));
}

// As an allreduce does it, block by block, also into the memory of a leaf.
TEST(ShardTree, IsAddedUpFromTheSubtreesOfAllRanks) {
  for (int shards = 1; shards <= kMostShards; ++shards) {
    for (int size = 1; size <= kMostRanks; ++size) {
      std::vector<Subtree> trees;
      std::vector<runtime::SumTree::Leaf> leaves;
      for (int rank = 0; rank < size; ++rank) {
        int slot = 0;
        for (const auto& tree : subtrees_within(shards, shards_of(shards, rank, size))) {
          trees.push_back(tree);
          leaves.push_back({rank, slot++});
        }
      }
      const runtime::SumTree sum(leaves, additions_of({0, shards}, trees), shards);
      std::vector<std::vector<std::uint64_t>> values;
      std::vector<const std::byte*> places;
      for (const auto& tree : trees) {
        values.emplace_back(5, combined_tree(tree));
        places.push_back(reinterpret_cast<const std::byte*>(values.back().data()));
      }
      runtime::TreeAdder adder(sum, combine, sizeof(std::uint64_t));
      auto& out = values[values.size() / 2];
      adder.add_up(places, 1, 3, reinterpret_cast<std::byte*>(out.data() + 1));
      const std::uint64_t expected = combined_tree({0, shards});
      ASSERT_EQ(std::vector<std::uint64_t>(out.begin() + 1, out.begin() + 4),
                std::vector<std::uint64_t>(3, expected))
          << shards << " shards, " << size << " ranks";
      ASSERT_NE(sum.digest(), 0U);
    }
  }
}

// Ranks are lost in the middle of a step, again and again, and others come.
TEST(ShardTree, IsTheSameAfterLossesAndNothingIsDoneTwice) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    const int shards = 1 + static_cast<int>(random() % kMostShards);
    std::vector<std::vector<Sum>> had(1 + random() % kMostRanks);
    for (int worlds = 0; worlds < 4; ++worlds) {
      int kept = 0;
      std::vector<std::vector<Subtree>> claims;
      for (const auto& sums : had) {
        claims.emplace_back();
        for (const auto& sum : sums) {
          claims.back().push_back(sum.tree);
          kept += sum.tree.size();
        }
      }

      const auto allotment = allot(shards, claims);
      int missing = 0;
      std::vector<Sum> all;
      for (std::size_t rank = 0; rank < had.size(); ++rank) {
        const int own = static_cast<int>(allotment.missing[rank].size());
        EXPECT_LE(
            own, (shards - kept + static_cast<int>(had.size()) - 1) / static_cast<int>(had.size()));
        EXPECT_EQ(allotment.kept[rank], claims[rank]);
        missing += own;
        had[rank] = sums_of(shards, had[rank], allotment.missing[rank]);
        all.insert(all.end(), had[rank].begin(), had[rank].end());
      }
      ASSERT_EQ(missing, shards - kept);
      ASSERT_EQ(total_of(shards, all), whole_tree({0, shards}));

      std::shuffle(had.begin(), had.end(), random);
      had.resize(random() % had.size());
      had.resize(had.size() + 1 + random() % 3);
      std::shuffle(had.begin(), had.end(), random);
    }
  }
}

TEST(ShardTree, IsNotTakenInWithWhatItHasNot) {
  const std::vector<std::vector<Subtree>> claims{
      {{0, 4}, {-4, 0}, {14, 18}, {5, 5}, {9, 7}}, {{2, 4}, {5, 7}, {8, 16}}, {{0, 16}}};
  const auto allotment = allot(16, claims);
  EXPECT_EQ(allotment.kept, (std::vector<std::vector<Subtree>>{{{0, 4}}, {{8, 16}}, {}}));
  EXPECT_EQ(allotment.missing, (std::vector<std::vector<int>>{{4}, {5}, {6, 7}}));
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

TEST(ShardRandomNumbers, CanBePassedOver) {
  std::vector<std::uint32_t> numbers(20);
  ShardRandom in_order(1, 2, 3);
  for (auto& number : numbers) number = in_order();
  for (std::size_t drawn = 0; drawn < 6; ++drawn) {
    for (std::size_t passed = 0; passed + drawn < numbers.size(); ++passed) {
      ShardRandom random(1, 2, 3);
      for (std::size_t i = 0; i < drawn; ++i) random();
      random.discard(passed);
      EXPECT_EQ(random(), numbers[drawn + passed]) << passed << " after " << drawn;
    }
  }
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
