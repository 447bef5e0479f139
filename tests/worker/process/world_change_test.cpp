#include <gtest/gtest.h>

#include "worker/process/world_follower.h"

namespace hvd::worker {
namespace {

// One worker on each of the hosts a, b, ...: that of incarnation 1 on host a.
WorldDocument world(const std::vector<std::uint64_t>& incarnations) {
  WorldDocument document;
  for (const auto incarnation : incarnations) {
    WorldMember member;
    member.rank = static_cast<int>(document.members.size());
    member.incarnation = incarnation;
    member.host = std::string(1, static_cast<char>('a' + incarnation - 1));
    document.members.push_back(member);
  }
  return document;
}

TEST(WorldChange, names_members_that_are_lost_and_counts_new_ones) {
  EXPECT_EQ(change_text(world({1, 2}), world({1, 2})), " with the same members");
  EXPECT_EQ(change_text(world({1, 2, 3}), world({1, 3})), " without rank 1 on b#0");
  EXPECT_EQ(change_text(world({1, 2, 3}), world({3})), " without rank 0 on a#0, rank 1 on b#0");
  EXPECT_EQ(change_text(world({1}), world({1, 2})), " with 1 new worker");
  EXPECT_EQ(change_text(world({1, 2}), world({2, 3, 4})),
            " without rank 0 on a#0, with 2 new workers");
}

TEST(WorldChange, names_six_and_counts_the_rest) {
  const WorldDocument before = world({1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_TRUE(change_text(before, world({7, 8})).ends_with(", rank 5 on f#0"));
  EXPECT_TRUE(change_text(before, world({8})).ends_with(", rank 5 on f#0 and 1 more"));
}

}  // namespace
}  // namespace hvd::worker
