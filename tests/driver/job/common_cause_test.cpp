#include "driver/job/common_cause.h"

#include <csignal>
#include <gtest/gtest.h>

namespace hvd::driver {
namespace {

using std::chrono::seconds;

const CommonCause::Place a0{"a", 0}, a1{"a", 1}, a2{"a", 2}, a3{"a", 3}, b0{"b", 0}, b1{"b", 1},
    b2{"b", 2}, c0{"c", 0}, d0{"d", 0};

class CommonCauseTest : public testing::Test {
 protected:
  // A worker in each of these slots, in this order; the newest of a slot is the one that is meant.
  void launch(const std::vector<CommonCause::Place>& places) {
    for (const auto& place : places) {
      workers_[place] = ++last_;
      cause_.launched(last_, place);
    }
  }
  void join(const CommonCause::Place& place) { cause_.joined(workers_.at(place)); }
  void is_lost(const CommonCause::Place& place) { cause_.lost(workers_.at(place)); }
  std::string fails(const CommonCause::Place& place, const std::string& how = "code 1") {
    const auto verdict =
        cause_.failed({workers_.at(place), place, how, generation_}, situation_, now_);
    first_ = verdict ? verdict->first : 0;
    return verdict ? verdict->why : "";
  }
  void all_work(const std::vector<CommonCause::Place>& places) {
    launch(places);
    for (const auto& place : places) join(place);
    situation_.world_size = places.size();
  }

  // A world of all eight slots, which ends when the worker in one of them has failed.
  std::string world_fails(const CommonCause::Place& place, const std::string& how = "code 1") {
    ++generation_;
    const std::vector<CommonCause::Place> all{a0, a1, a2, a3, b0, b1, b2, c0};
    launch(all);
    const std::string why = fails(place, how);
    for (const auto& one : all) is_lost(one);
    return why;
  }

  CommonCause cause_{3};
  CommonCause::Situation situation_{.world_size = 8, .world_hosts = 4, .hosts = 4, .slots = 8};
  std::uint64_t generation_ = 0;  // of the world of which those that fail are members
  TimePoint now_{std::chrono::hours(1)};
  Incarnation first_ = 0;  // the worker that the last verdict names

 private:
  std::map<CommonCause::Place, Incarnation> workers_;
  Incarnation last_ = 0;
};

// ---- the first workers ----

TEST_F(CommonCauseTest, is_found_when_none_of_the_first_workers_joins) {
  launch({a0, b0, c0});
  EXPECT_EQ(fails(a0), "");
  EXPECT_EQ(fails(b0, "code 2"), "");
  EXPECT_EQ(fails(c0), "no worker got as far as joining the others");
  EXPECT_EQ(first_, 1U);
}

TEST_F(CommonCauseTest, is_not_hidden_by_those_that_are_started_again) {
  launch({a0, b0});
  EXPECT_EQ(fails(a0), "");
  launch({a0});
  EXPECT_NE(fails(b0), "");
}

TEST_F(CommonCauseTest, is_found_in_all_slots_of_the_only_host) {
  situation_.hosts = 1;
  situation_.slots = 2;
  launch({a0, a1});
  EXPECT_EQ(fails(a0), "");
  EXPECT_NE(fails(a1), "");
}

TEST_F(CommonCauseTest, is_found_at_once_in_a_job_of_one_worker_on_one_host) {
  situation_.hosts = situation_.slots = 1;
  launch({a0});
  EXPECT_NE(fails(a0), "");
}

TEST_F(CommonCauseTest, is_not_found_where_the_only_host_has_slots_that_were_not_tried) {
  situation_.hosts = 1;
  launch({a0, a1});
  EXPECT_EQ(fails(a0), "");
  EXPECT_EQ(fails(a1), "");
  launch({a0, a2});
  EXPECT_EQ(fails(a0), "");
  EXPECT_NE(fails(a2), "");
}

// The slot's restarts say nothing of the program.
TEST_F(CommonCauseTest, is_not_found_in_one_slot_that_fails_while_others_start) {
  situation_.hosts = 1;
  launch({a0, a1, a2, a3});
  for (int failure = 0; failure < 20; ++failure) {
    EXPECT_EQ(fails(a3), "");
    launch({a3});
  }
}

TEST_F(CommonCauseTest, is_not_found_in_the_first_host_alone_if_there_are_others) {
  situation_.hosts = 2;
  launch({a0, a1});
  EXPECT_EQ(fails(a0), "");
  EXPECT_EQ(fails(a1), "");
  launch({a0, a1, b0});
  EXPECT_EQ(fails(a0), "");
  EXPECT_EQ(fails(a1), "");
  EXPECT_NE(fails(b0), "");
}

TEST_F(CommonCauseTest, is_not_found_while_a_slot_that_never_failed_may_still_join) {
  launch({a0, b0, c0});
  EXPECT_EQ(fails(a0), "");
  EXPECT_EQ(fails(b0), "");
  join(c0);
  EXPECT_EQ(fails(c0), "");
}

TEST_F(CommonCauseTest, does_not_wait_for_a_worker_that_was_lost) {
  launch({a0, b0, c0});
  is_lost(a0);
  EXPECT_EQ(fails(b0), "");
  EXPECT_NE(fails(c0), "");
  EXPECT_EQ(first_, 2U);
}

TEST_F(CommonCauseTest, needs_a_failure_of_its_own_in_a_slot_whose_worker_was_lost) {
  situation_.hosts = 2;
  launch({a0, b0});
  is_lost(a0);
  EXPECT_EQ(fails(b0), "");
  launch({a0, b0});
  EXPECT_EQ(fails(b0), "");
  EXPECT_NE(fails(a0), "");
}

// ---- worlds of which the first failure ends all others ----

TEST_F(CommonCauseTest, is_found_when_more_worlds_than_restarts_fail_in_several_places) {
  situation_.hosts = 3;
  EXPECT_EQ(world_fails(a1), "");
  EXPECT_EQ(world_fails(b0), "");
  EXPECT_EQ(world_fails(c0), "");
  EXPECT_EQ(world_fails(a1),
            "no worker got as far as joining the others, and 4 worlds failed this way one after "
            "the other, first in 3 slots of 3 hosts");
  EXPECT_EQ(first_, 2U);
}

TEST_F(CommonCauseTest, needs_worlds_that_fail_in_three_slots_if_there_are_three) {
  situation_.hosts = 1;
  for (const auto& place : {a0, a1, a0, a1, a0, a1}) EXPECT_EQ(world_fails(place), "");
  EXPECT_NE(world_fails(a2), "");
}

TEST_F(CommonCauseTest, needs_worlds_that_fail_in_both_slots_if_there_are_but_two) {
  situation_.hosts = 1;
  situation_.slots = 2;
  for (const auto& place : {a0, a0, a0, a0, a0}) EXPECT_EQ(world_fails(place), "");
  EXPECT_NE(world_fails(a1), "");
}

TEST_F(CommonCauseTest, is_not_found_in_worlds_that_fail_on_one_host_of_several) {
  situation_.hosts = 2;
  for (const auto& place : {a0, a1, a2, a3, a0, a1, a2, a3}) EXPECT_EQ(world_fails(place), "");
  EXPECT_NE(world_fails(b0), "");
}

TEST_F(CommonCauseTest, counts_the_first_failure_of_a_world_only) {
  situation_.hosts = 1;
  for (int world = 0; world < 10; ++world) {
    ++generation_;
    launch({a0, a1, a2, a3});
    for (const auto& place : {a0, a1, a2}) EXPECT_EQ(fails(place), "");
    is_lost(a3);
  }
}

TEST_F(CommonCauseTest, is_not_found_in_worlds_that_fail_in_different_ways) {
  situation_.hosts = 1;
  for (const auto& place : {a0, a1, a2}) EXPECT_EQ(world_fails(place), "");
  for (const auto& place : {a3, b0, b1}) EXPECT_EQ(world_fails(place, "code 2"), "");
  EXPECT_NE(world_fails(b2, "code 2"), "");
}

TEST_F(CommonCauseTest, forgets_worlds_that_failed_before_one_has_worked) {
  situation_.hosts = 1;
  for (const auto& place : {a0, a1, a2}) EXPECT_EQ(world_fails(place), "");
  cause_.forget_fresh();
  for (const auto& place : {a0, a1, a2}) EXPECT_EQ(world_fails(place), "");
}

TEST_F(CommonCauseTest, does_not_count_a_spare_as_a_world) {
  situation_.hosts = 1;
  for (const auto& place : {a1, a2, a3, b0, b1, b2}) {
    launch({a0, place});
    EXPECT_EQ(fails(place), "");
  }
}

// ---- later ones ----

TEST_F(CommonCauseTest, is_not_found_in_one_bad_host) {
  all_work({a0, b0, c0, d0});
  situation_.too_few = true;
  for (int failure = 0; failure < 20; ++failure) {
    launch({a1, a2, a3});
    for (const auto& place : {a1, a2, a3}) EXPECT_EQ(fails(place), "");
    now_ += seconds(6);
  }
}

TEST_F(CommonCauseTest,
       is_found_when_all_that_are_started_fail_on_three_hosts_and_too_few_are_left) {
  all_work({a0, b0, c0, d0});
  situation_.too_few = true;
  launch({a1, b1, d0});
  EXPECT_EQ(fails(a1), "");
  now_ += seconds(60);
  EXPECT_EQ(fails(b1), "");
  now_ += seconds(60);
  EXPECT_EQ(fails(d0),
            "workers that were started in 3 slots of 3 hosts all failed this way before they "
            "joined the others");
  EXPECT_EQ(first_, 5U);
}

// The rest goes on.
TEST_F(CommonCauseTest, is_not_looked_for_in_new_workers_while_the_others_are_enough) {
  all_work({a0, b0, c0, d0});
  launch({a1, b1, d0});
  for (const auto& place : {a1, b1, d0}) EXPECT_EQ(fails(place), "");
}

TEST_F(CommonCauseTest, is_not_found_while_another_is_on_its_way) {
  all_work({a0, b0, c0, d0});
  situation_.too_few = true;
  launch({a1, b1, d0, c0});
  for (const auto& place : {a1, b1, d0}) EXPECT_EQ(fails(place), "");
}

TEST_F(CommonCauseTest, is_found_on_both_hosts_if_there_are_but_two) {
  all_work({a0, b0});
  situation_.hosts = 2;
  situation_.too_few = true;
  launch({a1, a2, b1});
  EXPECT_EQ(fails(a1), "");
  EXPECT_EQ(fails(a2), "");
  EXPECT_NE(fails(b1), "");
}

TEST_F(CommonCauseTest, is_not_found_if_somebody_joins_or_fails_otherwise) {
  all_work({a0, b0, c0, d0});
  situation_.too_few = true;
  launch({a1, b1, a2, b2});
  EXPECT_EQ(fails(a1), "");
  EXPECT_EQ(fails(b1), "");
  join(a2);
  EXPECT_EQ(fails(b2), "");
  launch({c0, a3});
  EXPECT_EQ(fails(c0, "code 2"), "");
  EXPECT_EQ(fails(a3), "");
}

// ---- together ----

TEST_F(CommonCauseTest, is_found_when_nearly_all_fail_the_same_way_at_once) {
  all_work({a0, a1, b0, b1});
  situation_.world_hosts = 2;
  EXPECT_EQ(fails(a0), "");
  EXPECT_EQ(fails(a1), "");
  EXPECT_EQ(fails(b0), "workers in 3 slots of 2 hosts failed this way at once, in a world of 4");
  EXPECT_EQ(first_, 1U);
}

TEST_F(CommonCauseTest, counts_slots_where_those_that_failed_were_replaced) {
  all_work({a0, b0});
  situation_.world_hosts = 2;
  EXPECT_EQ(fails(a0), "");
  launch({a1});
  join(a1);
  EXPECT_EQ(fails(a1), "");
  EXPECT_EQ(fails(b0), "workers in 3 slots of 2 hosts failed this way at once, in a world of 2");
}

TEST_F(CommonCauseTest, is_not_found_in_one_slot_that_joins_and_fails_again_and_again) {
  all_work({a0, a1, a2, a3});
  situation_.world_hosts = situation_.hosts = 1;
  for (int failure = 0; failure < 10; ++failure) {
    EXPECT_EQ(fails(a3), "");
    launch({a3});
    join(a3);
  }
}

TEST_F(CommonCauseTest, is_not_found_in_a_host_that_has_most_of_the_workers) {
  all_work({a0, a1, a2, b0});
  situation_.world_hosts = 2;
  for (const auto& place : {a0, a1, a2}) EXPECT_EQ(fails(place), "");
}

TEST_F(CommonCauseTest, is_not_found_in_failures_that_differ_or_lie_apart) {
  all_work({a0, a1, b0, b1});
  situation_.world_hosts = 2;
  EXPECT_EQ(fails(a0), "");
  EXPECT_EQ(fails(a1), "");
  EXPECT_EQ(fails(b0, "code 2"), "");
  now_ += seconds(6);
  EXPECT_EQ(fails(b1), "");
}

TEST_F(CommonCauseTest, is_not_seen_in_the_loss_of_two_of_two) {
  all_work({a0, b0});
  situation_.world_hosts = 2;
  EXPECT_EQ(fails(a0), "");
  EXPECT_EQ(fails(b0), "");
}

TEST_F(CommonCauseTest, knows_what_comes_from_outside) {
  EXPECT_TRUE(comes_from_outside(SIGKILL));
  EXPECT_TRUE(comes_from_outside(SIGTERM));
  EXPECT_FALSE(comes_from_outside(SIGSEGV));
  EXPECT_FALSE(comes_from_outside(SIGABRT));
}

}  // namespace
}  // namespace hvd::driver
