#include "worker/process/set_table.h"

#include <gtest/gtest.h>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/wire.h"

namespace hvd::worker {
namespace {

WorldDocument world_of(std::uint64_t generation, const std::vector<int>& workers) {
  WorldDocument document;
  document.job_id = "job";
  document.generation = generation;
  for (const int worker : workers) {
    const int rank = static_cast<int>(document.members.size());
    document.members.push_back({rank, "a", worker, 100U + static_cast<std::uint64_t>(worker),
                                "127.0.0.1", rank, static_cast<int>(workers.size()), 0, 1});
  }
  return document;
}

TEST(ElasticSets, FollowTheirWorkersThroughTheWorldsOnAllRanks) {
  auto sets = SetTable::of({{0, 2}, {1, 2}}, false, world_of(1, {0, 1, 2, 3}));
  ASSERT_TRUE(sets.ok());
  sets->enter(world_of(1, {0, 1, 2, 3}));
  sets->added(3, {0, 1, 3});
  sets->let_shrink(3);
  sets->added(4, {0, 3}, true);
  sets->enter(world_of(2, {3, 2, 0}));
  // As another rank receives it.
  auto read = SetTable::decode(sets->encode());
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  for (auto* const table : {&*sets, &*read}) {
    const auto ranks = table->ranks();
    ASSERT_EQ(ranks.size(), 3U);
    EXPECT_EQ(ranks.at(1).ranks, (std::vector<int>{1, 2}));
    EXPECT_EQ(ranks.at(3).ranks, (std::vector<int>{0, 2}));
    EXPECT_EQ(ranks.at(4).ranks, (std::vector<int>{0, 2}));
    EXPECT_TRUE(ranks.at(4).by_members && !ranks.at(3).by_members);
    EXPECT_EQ(table->next(), 5);
    EXPECT_EQ(table->lost(2), "a#1");
    EXPECT_FALSE(table->lost(1) || table->lost(3) || table->lost(9));
    EXPECT_EQ(table->take_up({0, 2}), 3);
    EXPECT_EQ(table->take_up({0, 2}), std::nullopt) << "a second one is a duplicate";
    EXPECT_EQ(table->take_up({0, 2}, true), 4) << "the members have one of their own";
    table->enter(world_of(3, {4}));
    EXPECT_EQ(table->lost(3), "a#0, a#3");
    EXPECT_TRUE(table->ranks().empty());
  }
}

TEST(ElasticSets, OfUnknownRanksOrABrokenEncodingAreErrors) {
  const auto sets = SetTable::of({{0}, {0, 7}}, false, world_of(1, {0, 1}));
  EXPECT_NE(sets.status().message().find("process set 2: there is no rank 7 in a world of 2"),
            std::string::npos)
      << sets.status().to_string();
  EXPECT_FALSE(SetTable::decode("rubbish").ok());
  const auto good = SetTable::of({{0}}, false, world_of(1, {0, 1}))->encode();
  for (std::size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(SetTable::decode(good.substr(0, length)).ok()) << length;
  }
  EXPECT_FALSE(SetTable::decode(WireWriter().i32(1).u32(0).str("no world").take()).ok());
}

}  // namespace
}  // namespace hvd::worker
