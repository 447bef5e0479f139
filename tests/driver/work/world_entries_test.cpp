#include <gtest/gtest.h>
#include <limits>

#include "driver/work/work_watch.h"

namespace hvd::driver {
namespace {

WorldDocument world_of(std::uint64_t generation, std::size_t size) {
  WorldDocument world;
  world.generation = generation;
  world.members.resize(size);
  return world;
}

// Through its first step in this world.
WorldEntry entry_of(std::uint64_t generation, std::uint64_t connect, std::uint64_t received = 0) {
  return {.generation = generation,
          .wait_ns = 1,
          .connect_ns = connect,
          .received_bytes = received,
          .step_ns = 2};
}

TEST(WorldEntries, TheLastMemberCompletesTheWorld) {
  WorldEntries entries;
  const WorldDocument world = world_of(4, 3);
  EXPECT_FALSE(entries.add(world, 1, entry_of(4, 10, 100)));
  EXPECT_FALSE(entries.add(world, 2, entry_of(4, 30)));
  EXPECT_FALSE(entries.add(world, 2, entry_of(4, 90))) << "it is there already";
  const auto entered = entries.add(world, 3, entry_of(4, 20, 11));
  ASSERT_TRUE(entered);
  EXPECT_EQ(entered->generation, 4U);
  EXPECT_EQ(entered->slowest, 2U);
  EXPECT_EQ(entered->connect, Duration(30));
  EXPECT_EQ(entered->time(), Duration(33));
  EXPECT_EQ(entered->received, 111U);
  EXPECT_FALSE(entries.add(world, 3, entry_of(4, 20, 11))) << "it is told once";
}

TEST(WorldEntries, TheMemberThatRedoesMostCounts) {
  WorldEntries entries;
  WorldEntry most = entry_of(1, 10);
  most.redone_steps = 7;
  EXPECT_FALSE(entries.add(world_of(1, 3), 1, entry_of(1, 90)));
  EXPECT_FALSE(entries.add(world_of(1, 3), 2, most));
  most.redone_steps = 6;
  const auto entered = entries.add(world_of(1, 3), 3, most);
  ASSERT_TRUE(entered);
  EXPECT_EQ(entered->slowest, 1U);
  EXPECT_EQ(entered->redone, 7U);
}

TEST(WorldEntries, AStepThatLastsIsWaitedFor) {
  WorldEntries entries;
  WorldEntry entry = entry_of(1, 10);
  entry.step_ns = 0;
  EXPECT_FALSE(entries.add(world_of(1, 1), 1, entry));
  EXPECT_TRUE(entries.add(world_of(1, 1), 1, entry_of(1, 10)));
}

TEST(WorldEntries, AnotherWorldBeginsAnew) {
  WorldEntries entries;
  EXPECT_FALSE(entries.add(world_of(1, 2), 1, entry_of(1, 10)));
  EXPECT_FALSE(entries.add(world_of(2, 2), 2, entry_of(1, 10))) << "of the world before";
  EXPECT_FALSE(entries.add(world_of(2, 2), 2, entry_of(2, 10)));
  EXPECT_FALSE(entries.add(world_of(2, 2), 1, entry_of(3, 10))) << "of no world yet";
  EXPECT_TRUE(entries.add(world_of(2, 2), 1, entry_of(2, 10)));
}

TEST(WorldEntries, AbsurdTimesStayFinite) {
  constexpr auto kMost = std::numeric_limits<std::uint64_t>::max();
  WorldEntries entries;
  const auto entered = entries.add(
      world_of(1, 1), 1, {1, kMost, kMost, kMost, kMost, kMost, kMost, kMost, kMost, kMost});
  ASSERT_TRUE(entered);
  EXPECT_GT(entered->time(), std::chrono::hours(24 * 365));
  EXPECT_LE(entered->time(), std::chrono::hours(6 * 24 * 365));
  EXPECT_LT(entered->received, std::uint64_t{1} << 50);
  EXPECT_LT(entered->redone, std::uint64_t{1} << 50);
}

}  // namespace
}  // namespace hvd::driver
