#include "driver/job/suspension.h"

#include <csignal>
#include <gtest/gtest.h>

namespace hvd::driver {
namespace {

using std::chrono::seconds;
using Answer = Suspension::Answer;

constexpr std::uint64_t kMebibyte = 1 << 20;

class SuspensionTest : public testing::Test {
 protected:
  void begin() {
    ASSERT_EQ(suspension_.ask(true), Answer::suspend);
    suspension_.begin(SIGTERM);
    suspension_.await_commit(now_ + seconds(30));
  }
  bool save(std::uint64_t written, bool is_in_place = false, bool may_wait = true) {
    return suspension_.on_saving({0, 1, 900 * kMebibyte, written * kMebibyte, is_in_place},
                                 may_wait, now_);
  }

  TimePoint now_{std::chrono::hours(1)};
  Suspension suspension_;
};

TEST_F(SuspensionTest, a_second_signal_stops_the_job) {
  begin();
  EXPECT_TRUE(suspension_.is_under_way());
  EXPECT_EQ(suspension_.ask(true), Answer::stop);
}

TEST_F(SuspensionTest, a_job_that_cannot_commit_is_stopped) {
  EXPECT_EQ(suspension_.ask(false), Answer::stop);
  EXPECT_FALSE(suspension_.has_begun());
}

TEST_F(SuspensionTest, the_first_signal_after_all_were_told_to_go_changes_nothing) {
  suspension_.begin(SIGTERM);
  EXPECT_EQ(suspension_.ask(true), Answer::nothing);
  EXPECT_EQ(suspension_.ask(true), Answer::stop);
}

TEST_F(SuspensionTest, a_state_that_is_written_has_a_deadline_of_its_own) {
  begin();
  now_ += seconds(29);
  EXPECT_TRUE(save(0));
  EXPECT_EQ(suspension_.deadline(), now_ + Suspension::kSaveTimeout);
  now_ += seconds(400);
  EXPECT_FALSE(save(312)) << "it was told of before";
  EXPECT_EQ(suspension_.deadline(), now_ + Suspension::kSaveTimeout);
  EXPECT_EQ(suspension_.saving_text(), "312 MiB of 900 MiB of the state");
  suspension_.await_commit(now_ + seconds(30));
  EXPECT_FALSE(suspension_.is_saving()) << "the one that wrote is gone, and another one will";
}

TEST_F(SuspensionTest, a_file_that_is_in_place_counts_although_the_job_stops) {
  begin();
  EXPECT_FALSE(save(900, true, false));
  EXPECT_TRUE(suspension_.is_in_place());
  EXPECT_FALSE(suspension_.is_saving());
}

TEST_F(SuspensionTest, nothing_counts_before_it_and_after_it) {
  EXPECT_FALSE(save(900, true));
  EXPECT_FALSE(suspension_.is_in_place());
  begin();
  suspension_.finish();
  EXPECT_FALSE(suspension_.is_under_way());
  EXPECT_EQ(suspension_.deadline(), kNever);
  EXPECT_FALSE(save(900, true));
  EXPECT_FALSE(suspension_.is_in_place());
}

}  // namespace
}  // namespace hvd::driver
