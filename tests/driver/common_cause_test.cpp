#include "driver/job/common_cause.h"

#include <csignal>
#include <gtest/gtest.h>

namespace hvd::driver {
namespace {

using std::chrono::seconds;

class CommonCauseTest : public testing::Test {
 protected:
  void launch(Incarnation first, Incarnation last) {
    for (Incarnation worker = first; worker <= last; ++worker) cause_.launched(worker);
  }
  void join(Incarnation first, Incarnation last) {
    for (Incarnation worker = first; worker <= last; ++worker) cause_.joined(worker);
  }
  std::string fails(Incarnation worker, const std::string& host,
                    const std::string& how = "code 1") {
    return cause_.failed({worker, host, how}, world_size_, hosts_, now_);
  }

  CommonCause cause_;
  std::size_t world_size_ = 8;
  std::size_t hosts_ = 4;
  TimePoint now_{std::chrono::hours(1)};
};

TEST_F(CommonCauseTest, is_found_when_none_of_the_first_workers_joins) {
  launch(1, 3);
  EXPECT_EQ(fails(1, "a"), "");
  EXPECT_EQ(fails(2, "b", "code 2"), "");
  EXPECT_EQ(fails(3, "c"), "no worker got as far as joining the others");
}

TEST_F(CommonCauseTest, is_not_hidden_by_those_that_are_started_again) {
  launch(1, 2);
  EXPECT_EQ(fails(1, "a"), "");
  launch(3, 3);
  EXPECT_NE(fails(2, "a"), "");
}

TEST_F(CommonCauseTest, is_found_at_once_in_a_job_of_one_worker) {
  launch(1, 1);
  EXPECT_NE(fails(1, "a"), "");
}

TEST_F(CommonCauseTest, is_not_found_while_some_of_the_first_may_still_join) {
  launch(1, 4);
  EXPECT_EQ(fails(1, "a"), "");
  EXPECT_EQ(fails(2, "a"), "");
  join(3, 4);
  EXPECT_EQ(fails(3, "a"), "");
}

TEST_F(CommonCauseTest, is_not_found_in_one_bad_host) {
  launch(1, 8);
  join(1, 8);
  for (Incarnation worker = 9; worker < 30; ++worker) {
    launch(worker, worker);
    EXPECT_EQ(fails(worker, "bad"), "");
    now_ += seconds(6);
  }
}

TEST_F(CommonCauseTest, is_found_when_the_newest_fail_on_three_hosts) {
  launch(1, 8);
  join(1, 8);
  launch(9, 11);
  EXPECT_EQ(fails(9, "a"), "");
  now_ += seconds(60);
  EXPECT_EQ(fails(10, "b"), "");
  now_ += seconds(60);
  EXPECT_EQ(fails(11, "c"),
            "the last 3 workers that were started, on 3 hosts, all failed this way before they "
            "joined the others");
}

TEST_F(CommonCauseTest, is_found_on_both_hosts_if_there_are_but_two) {
  hosts_ = 2;
  launch(1, 8);
  join(1, 8);
  launch(9, 11);
  EXPECT_EQ(fails(9, "a"), "");
  EXPECT_EQ(fails(10, "a"), "");
  EXPECT_NE(fails(11, "b"), "");
}

TEST_F(CommonCauseTest, is_not_found_if_somebody_joins_or_fails_otherwise) {
  launch(1, 8);
  join(1, 8);
  launch(9, 20);
  EXPECT_EQ(fails(9, "a"), "");
  EXPECT_EQ(fails(10, "b"), "");
  join(11, 11);
  EXPECT_EQ(fails(12, "c"), "");
  EXPECT_EQ(fails(13, "d", "code 2"), "");
  EXPECT_EQ(fails(14, "e"), "");
}

TEST_F(CommonCauseTest, is_found_when_nearly_all_fail_the_same_way_at_once) {
  launch(1, 8);
  join(1, 8);
  for (Incarnation worker = 1; worker <= 5; ++worker) EXPECT_EQ(fails(worker, "a"), "");
  EXPECT_EQ(fails(6, "b"), "6 of 8 workers failed this way at once");
}

TEST_F(CommonCauseTest, is_not_found_in_failures_that_differ_or_lie_apart) {
  launch(1, 8);
  join(1, 8);
  for (Incarnation worker = 1; worker <= 4; ++worker) EXPECT_EQ(fails(worker, "a"), "");
  for (Incarnation worker = 5; worker <= 7; ++worker) EXPECT_EQ(fails(worker, "a", "code 2"), "");
  now_ += seconds(6);
  EXPECT_EQ(fails(8, "a"), "");
}

TEST_F(CommonCauseTest, is_not_seen_in_the_loss_of_two_of_two) {
  world_size_ = 2;
  launch(1, 2);
  join(1, 2);
  EXPECT_EQ(fails(1, "a"), "");
  EXPECT_EQ(fails(2, "a"), "");
}

TEST_F(CommonCauseTest, knows_what_comes_from_outside) {
  EXPECT_TRUE(comes_from_outside(SIGKILL));
  EXPECT_TRUE(comes_from_outside(SIGTERM));
  EXPECT_FALSE(comes_from_outside(SIGSEGV));
  EXPECT_FALSE(comes_from_outside(SIGABRT));
}

TEST_F(CommonCauseTest, does_not_wait_for_a_worker_that_was_lost) {
  launch(1, 2);
  cause_.lost(1);
  EXPECT_NE(fails(2, "a"), "");
}

}  // namespace
}  // namespace hvd::driver
