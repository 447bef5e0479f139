#include "worker/process/world_follower.h"

#include <gtest/gtest.h>

namespace hvd::worker {
namespace {

constexpr std::uint64_t kMe = 1;

WorldDocument world(std::uint64_t generation, WorldState state,
                    const std::vector<std::uint64_t>& incarnations) {
  WorldDocument document;
  document.generation = generation;
  document.state = state;
  for (const auto incarnation : incarnations) {
    WorldMember member;
    member.rank = static_cast<int>(document.members.size());
    member.incarnation = incarnation;
    document.members.push_back(member);
  }
  return document;
}

WorldDocument effective(std::uint64_t generation, const std::vector<std::uint64_t>& incarnations) {
  return world(generation, WorldState::effective, incarnations);
}

WorldDocument proposed(std::uint64_t generation, const std::vector<std::uint64_t>& incarnations) {
  return world(generation, WorldState::proposed, incarnations);
}

std::uint64_t generation_of(const WorldDocument* document) {
  return document == nullptr ? 0 : document->generation;
}

// In the world 3 of the incarnations 1 to 3.
WorldFollower member() {
  WorldFollower follower(kMe);
  follower.hear(effective(3, {1, 2, 3}));
  follower.entered(3);
  return follower;
}

TEST(WorldFollower, a_joining_worker_waits_for_an_effective_world_with_it) {
  WorldFollower follower(kMe);
  EXPECT_EQ(follower.next(), nullptr);
  EXPECT_FALSE(follower.hear(effective(3, {2, 3})));
  EXPECT_EQ(follower.next(), nullptr);
  EXPECT_FALSE(follower.is_out()) << "it was never in";
  EXPECT_FALSE(follower.hear(proposed(4, {2, 3, kMe})));
  EXPECT_EQ(follower.next(), nullptr);
  EXPECT_FALSE(follower.hear(effective(4, {2, 3, kMe}))) << "there is no world of its own to end";
  EXPECT_EQ(generation_of(follower.next()), 4U);
  follower.entered(4);
  EXPECT_EQ(follower.entered(), 4U);
  EXPECT_EQ(follower.next(), nullptr);
}

TEST(WorldFollower, an_effective_world_ends_the_one_it_is_in) {
  WorldFollower follower = member();
  EXPECT_TRUE(follower.hear(effective(4, {1, 2})));
  EXPECT_EQ(generation_of(follower.next()), 4U);
  EXPECT_FALSE(follower.is_out());
}

TEST(WorldFollower, a_proposed_world_ends_nothing) {
  WorldFollower follower = member();
  EXPECT_FALSE(follower.hear(proposed(4, {1, 2})));
  EXPECT_EQ(follower.next(), nullptr);
  EXPECT_EQ(generation_of(follower.proposed()), 4U);
}

TEST(WorldFollower, old_and_known_worlds_change_nothing) {
  WorldFollower follower = member();
  EXPECT_FALSE(follower.hear(effective(3, {1, 2, 3})));
  EXPECT_FALSE(follower.hear(effective(2, {2, 3})));
  EXPECT_FALSE(follower.is_out());
  EXPECT_TRUE(follower.hear(effective(6, {1, 2})));
  EXPECT_FALSE(follower.hear(effective(6, {1, 2})));
  EXPECT_FALSE(follower.hear(effective(5, {1, 3})));
  EXPECT_EQ(generation_of(follower.next()), 6U);
}

TEST(WorldFollower, skips_to_the_newest_world) {
  WorldFollower follower = member();
  follower.hear(effective(5, {1, 2}));
  follower.hear(effective(7, {1}));
  EXPECT_EQ(generation_of(follower.next()), 7U);
}

TEST(WorldFollower, a_worker_that_the_newest_world_lacks_is_out) {
  WorldFollower follower = member();
  follower.hear(effective(4, {1, 2}));
  EXPECT_TRUE(follower.hear(effective(5, {2})));
  EXPECT_TRUE(follower.is_out());
  EXPECT_EQ(follower.next(), nullptr);
}

TEST(WorldFollower, a_commit_puts_a_proposed_world_into_force) {
  WorldFollower follower = member();
  const auto next = proposed(4, {1, 2, 5});
  follower.hear(next);
  follower.committed(next);
  EXPECT_EQ(generation_of(follower.next()), 4U);
  follower.entered(4);
  EXPECT_EQ(follower.proposed(), nullptr);
  EXPECT_FALSE(follower.hear(effective(4, {1, 2, 5}))) << "the driver says it after the commit";
}

TEST(WorldFollower, a_commit_may_be_the_first_message_about_a_world) {
  WorldFollower follower = member();
  follower.committed(proposed(4, {2, 3}));
  EXPECT_TRUE(follower.is_out());
}

TEST(WorldFollower, a_commit_of_a_world_that_is_obsolete_changes_nothing) {
  WorldFollower follower = member();
  follower.hear(effective(5, {1, 2}));
  follower.committed(proposed(4, {2, 3}));
  EXPECT_FALSE(follower.is_out());
  EXPECT_EQ(generation_of(follower.next()), 5U);
}

TEST(WorldFollower, rank_0_goes_over_to_the_newest_proposal) {
  WorldFollower follower = member();
  EXPECT_EQ(follower.proposed(), nullptr);
  follower.hear(proposed(4, {1, 2}));
  follower.hear(proposed(5, {1, 3}));
  follower.hear(proposed(4, {1, 2}));
  EXPECT_EQ(generation_of(follower.proposed()), 5U);
}

TEST(WorldFollower, a_loss_makes_proposals_obsolete) {
  WorldFollower follower = member();
  follower.hear(proposed(4, {1, 2}));
  follower.hear(effective(5, {1, 3}));
  EXPECT_EQ(follower.proposed(), nullptr);
  follower.entered(5);
  follower.hear(proposed(4, {1, 2}));
  EXPECT_EQ(follower.proposed(), nullptr);
}

TEST(WorldFollower, a_proposal_of_the_same_members_withdraws_those_before_it) {
  WorldFollower follower = member();
  follower.hear(proposed(4, {1, 2}));
  follower.hear(proposed(5, {3, 2, 1}));
  EXPECT_EQ(follower.proposed(), nullptr);
}

TEST(WorldFollower, after_the_last_commit_it_is_out_whatever_it_receives) {
  WorldFollower follower = member();
  WorldDocument last = proposed(4, {1, 2, 3});
  last.last = true;
  EXPECT_FALSE(follower.hear(last));
  ASSERT_EQ(generation_of(follower.proposed()), 4U);
  EXPECT_FALSE(follower.is_out()) << "no commit has taken it into force";

  // A loss has made a world before hvdrun knew of the commit.
  EXPECT_TRUE(follower.hear(effective(5, {1, 2})));
  follower.committed(last);
  EXPECT_EQ(follower.next(), nullptr);
  EXPECT_TRUE(follower.is_out());
  EXPECT_FALSE(follower.hear(effective(6, {1}))) << "there is nothing to end";
  EXPECT_EQ(follower.next(), nullptr);
  EXPECT_TRUE(follower.is_out());
}

TEST(WorldFollower, a_last_world_in_force_leaves_nobody_in) {
  WorldFollower follower = member();
  WorldDocument last = effective(4, {1, 2, 3});
  last.last = true;
  EXPECT_TRUE(follower.hear(last));
  EXPECT_EQ(follower.next(), nullptr);
  EXPECT_TRUE(follower.is_out());
}

}  // namespace
}  // namespace hvd::worker
