#include <gtest/gtest.h>

#include "driver/job/staffing.h"

namespace hvd::driver {
namespace {

using std::chrono::seconds;

const TimePoint kNow{std::chrono::hours(1)};

std::vector<Leaver> leavers(const std::vector<Incarnation>& incarnations) {
  std::vector<Leaver> result;
  for (const Incarnation one : incarnations) result.push_back({one, kNow});
  return result;
}

using Workers = std::vector<Incarnation>;

TEST(Handover, needs_nobody_if_others_of_the_world_go_on) {
  EXPECT_EQ(who_stays_on(leavers({1, 2}), 0, {3}, {{1, 2, 3}}), Workers{});
  EXPECT_EQ(who_stays_on({}, 0, {4}, {{1, 2, 3}}), Workers{});
}

TEST(Handover, keeps_one_if_all_others_are_new) {
  EXPECT_EQ(who_stays_on(leavers({1, 2, 3}), 0, {4, 5, 6}, {{1, 2, 3}}), Workers{1});
  EXPECT_EQ(who_stays_on(leavers({1, 2, 3}), 0, {}, {{1, 2, 3}}), Workers{1});
}

TEST(Handover, keeps_as_many_as_the_least_needs) {
  EXPECT_EQ(who_stays_on(leavers({1, 2, 3}), 2, {}, {{1, 2, 3}}), (Workers{1, 2}));
  EXPECT_EQ(who_stays_on(leavers({1, 2, 3}), 1, {4}, {{1, 2, 3, 4}}), Workers{1});
  EXPECT_EQ(who_stays_on(leavers({1}), 3, {}, {{1}}), Workers{1});
}

TEST(Handover, counts_the_worker_that_hands_over_among_the_least) {
  EXPECT_EQ(who_stays_on(leavers({1, 2}), 1, {4}, {{1, 2}}), Workers{1});
}

TEST(Handover, keeps_the_workers_with_the_most_time_left) {
  const std::vector<Leaver> some{{1, kNow}, {2, kNow + seconds(2)}, {3, kNow + seconds(1)}};
  EXPECT_EQ(who_stays_on(some, 0, {4}, {{1, 2, 3}}), Workers{2});
  EXPECT_EQ(who_stays_on(some, 2, {}, {{1, 2, 3}}), (Workers{2, 3}));
}

// A commit may have taken any of the proposed ones into force.
TEST(Handover, keeps_a_worker_of_every_world_that_may_be_in_force) {
  EXPECT_EQ(who_stays_on(leavers({1}), 0, {2}, {{1, 2}, {1, 7}}), Workers{1});
  EXPECT_EQ(who_stays_on(leavers({1, 2}), 0, {8}, {{1, 2}, {1, 7}, {2, 8}}), Workers{1});
  EXPECT_EQ(who_stays_on(leavers({1, 2}), 0, {}, {{1, 2}, {2}}), Workers{2});
  EXPECT_EQ(who_stays_on(leavers({1}), 0, {2, 7}, {{1, 2}, {1, 7}}), Workers{});
}

}  // namespace
}  // namespace hvd::driver
