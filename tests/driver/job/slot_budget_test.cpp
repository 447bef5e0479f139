#include "driver/job/slot_budget.h"

#include <gtest/gtest.h>

#include "base/text.h"

namespace hvd::driver {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class SlotBudgetTest : public testing::Test {
 protected:
  SlotBudgetTest() {
    options_.longest = seconds(100);
    set(options_);
  }
  void set(const BudgetOptions& options) { budget_ = SlotBudget(options); }
  // Seconds of rest; -1 for ever.
  double worker_fails(const std::string& host, int slot, double random = 0) {
    return rest(budget_.worker_failed(host, slot, now_, random));
  }
  double host_fails(const std::string& host, double random = 0) {
    return rest(budget_.host_failed(host, now_, random));
  }
  double host_is_lost(const std::string& host) { return rest(budget_.host_lost(host, now_, 0)); }
  std::vector<int> resting_slots(const std::string& host) const {
    return budget_.resting_slots(host, now_);
  }
  int failures(const std::string& host, int slot) const { return budget_.failures(host, slot); }
  void pass(seconds time) { now_ += time; }
  bool rests(const std::string& host) const { return budget_.rests(host, now_); }
  bool remembers(const std::string& host) {
    budget_.forget_old(now_);
    return budget_.remembers(host);
  }
  double next_end() const { return rest(budget_.next_end(now_)); }

  BudgetOptions options_;

 private:
  double rest(TimePoint until) const {
    if (until == kNever) return -1;
    return std::chrono::duration<double>(until - now_).count();
  }
  TimePoint now_{std::chrono::hours(1)};
  SlotBudget budget_{options_};
};

TEST_F(SlotBudgetTest, starts_a_slot_again_at_once_until_its_budget_is_used_up) {
  EXPECT_EQ(worker_fails("a", 1), 0);
  EXPECT_EQ(worker_fails("a", 1), 0);
  EXPECT_EQ(worker_fails("a", 1), 0);
  EXPECT_EQ(resting_slots("a"), std::vector<int>{});
  EXPECT_EQ(worker_fails("a", 1), 10);
  EXPECT_EQ(resting_slots("a"), std::vector<int>{1});
  EXPECT_EQ(failures("a", 1), 4);
}

TEST_F(SlotBudgetTest, leaves_the_neighbours_of_a_slot_that_rests_alone) {
  for (int failure = 0; failure < 3; ++failure) worker_fails("a", 1);
  EXPECT_EQ(worker_fails("a", 1), 10);
  EXPECT_FALSE(rests("a"));
  EXPECT_FALSE(rests("b"));
  EXPECT_EQ(worker_fails("a", 0), 0);
  pass(seconds(10));
  EXPECT_EQ(resting_slots("a"), std::vector<int>{});
}

TEST_F(SlotBudgetTest, forgets_a_host_when_no_answer_depends_on_it_any_more) {
  worker_fails("a", 1);
  worker_fails("a", 1);
  host_fails("b");
  pass(seconds(119));
  EXPECT_TRUE(remembers("a"));
  EXPECT_TRUE(remembers("b"));
  pass(seconds(1));
  EXPECT_FALSE(remembers("a"));
  EXPECT_TRUE(remembers("b")) << "its next rest would be longer";
  pass(seconds(480));
  EXPECT_FALSE(remembers("b"));
}

TEST_F(SlotBudgetTest, does_not_forget_a_rest_without_an_end) {
  options_.longest = seconds(0);
  set(options_);
  host_fails("a");
  pass(seconds(1'000'000));
  EXPECT_TRUE(remembers("a"));
}

TEST_F(SlotBudgetTest, lets_a_host_rest_that_was_lost_too_often) {
  for (int loss = 0; loss < 3; ++loss) EXPECT_EQ(host_is_lost("a"), 0);
  EXPECT_EQ(host_is_lost("a"), 10);
  EXPECT_TRUE(rests("a"));
  EXPECT_EQ(resting_slots("a"), std::vector<int>{});
}

TEST_F(SlotBudgetTest, counts_each_slot_by_itself) {
  for (int slot = 0; slot < 8; ++slot) {
    EXPECT_EQ(worker_fails("a", slot), 0);
    EXPECT_EQ(worker_fails("b", slot), 0);
  }
}

TEST_F(SlotBudgetTest, forgets_failures_with_time) {
  for (int hour = 0; hour < 20; ++hour) {
    EXPECT_EQ(worker_fails("a", 0), 0);
    pass(seconds(61));
  }
  EXPECT_EQ(worker_fails("a", 0), 0);
  EXPECT_EQ(worker_fails("a", 0), 0);
  EXPECT_EQ(worker_fails("a", 0), 0);
  EXPECT_EQ(worker_fails("a", 0), 10);
}

TEST_F(SlotBudgetTest, lets_a_host_that_keeps_failing_rest_longer_each_time_up_to_the_longest) {
  std::vector<double> times;
  for (int failure = 0; failure < 6; ++failure) {
    times.push_back(host_fails("a"));
    pass(seconds(static_cast<int>(times.back())));
    EXPECT_FALSE(rests("a"));
  }
  EXPECT_EQ(times, (std::vector<double>{10, 20, 40, 80, 100, 100}));
}

TEST_F(SlotBudgetTest, spreads_rests_by_the_random_number_within_the_range) {
  EXPECT_EQ(host_fails("a", 0.5), 15);
  EXPECT_EQ(host_fails("b", 0.25), 12.5);
  pass(seconds(20));
  EXPECT_EQ(host_fails("a", 0.5), 25);
  options_.shortest = options_.longest = seconds(30);
  set(options_);
  EXPECT_EQ(host_fails("a", 0.9), 30);
}

TEST_F(SlotBudgetTest, goes_on_with_a_rest_when_more_fails) {
  EXPECT_EQ(host_fails("a"), 10);
  pass(seconds(4));
  EXPECT_EQ(host_fails("a"), 6);
  EXPECT_EQ(worker_fails("a", 3), 6);
  EXPECT_EQ(next_end(), 6);
}

TEST_F(SlotBudgetTest, forgets_rests_with_more_time) {
  EXPECT_EQ(host_fails("a"), 10);
  pass(seconds(10));
  EXPECT_EQ(host_fails("a"), 20);
  pass(seconds(3600));
  EXPECT_EQ(host_fails("a"), 10);
}

TEST_F(SlotBudgetTest, still_knows_after_a_rest_what_a_slot_did) {
  for (int failure = 0; failure < 3; ++failure) worker_fails("a", 0);
  EXPECT_EQ(worker_fails("a", 0), 10);
  pass(seconds(11));
  EXPECT_EQ(resting_slots("a"), std::vector<int>{});
  EXPECT_EQ(worker_fails("a", 0), 20);
}

TEST_F(SlotBudgetTest, lets_the_host_rest_at_the_first_failure_with_horovods_policy) {
  options_.policy = FailurePolicy::host;
  set(options_);
  EXPECT_EQ(worker_fails("a", 0), 10);
  options_.longest = milliseconds(0);
  set(options_);
  EXPECT_EQ(worker_fails("a", 0), -1);
  pass(std::chrono::hours(1000));
  EXPECT_TRUE(rests("a"));
  EXPECT_EQ(next_end(), -1);
}

TEST_F(SlotBudgetTest, may_have_no_budget_at_all) {
  options_.restarts = 0;
  set(options_);
  EXPECT_EQ(worker_fails("a", 0), 10);
}

TEST_F(SlotBudgetTest, names_the_first_rest_that_ends) {
  EXPECT_EQ(next_end(), -1);
  host_fails("a", 0.5);
  host_fails("b");
  EXPECT_EQ(next_end(), 10);
  pass(seconds(10));
  EXPECT_EQ(next_end(), 5);
  options_.restarts = 0;
  set(options_);
  worker_fails("a", 2, 0.5);
  worker_fails("a", 1);
  EXPECT_EQ(next_end(), 10);
}

}  // namespace
}  // namespace hvd::driver
