#include "driver/job/job_account.h"

#include <csignal>
#include <gtest/gtest.h>

namespace hvd::driver {
namespace {

using std::chrono::milliseconds;

// A job on one host with two slots, and its account.
class JobAccountTest : public testing::Test {
 protected:
  explicit JobAccountTest(milliseconds pace = milliseconds(0)) : job_(options(pace)) {
    happens(event::Begin{});
    happens(event::HostsFound{{{{"a", 2}}}});
    happens(event::AgentReady{0, {}});
    happens(event::AddressFound{0, "10.0.0.1"});
  }

  static JobOptions options(milliseconds pace) {
    JobOptions options;
    options.pace = pace;
    options.elastic.limits.least = 2;
    return options;
  }
  void happens(const Event& event, milliseconds after = milliseconds(0)) {
    now_ += after;
    account_.step(event, job_.step(event, now_), job_, now_);
  }
  void runs(Incarnation incarnation) {
    happens(event::Launched{0, incarnation, 100});
    happens(event::Initialised{0, incarnation});
  }
  JobSummary summary() const { return account_.summary(job_, now_); }

 private:
  Job job_;
  JobAccount account_;
  TimePoint now_{std::chrono::hours(1)};
};

TEST_F(JobAccountTest, CountsAWorkerThatIsLostAndTheOneInItsPlace) {
  runs(1);
  runs(2);
  happens(event::Tick{}, milliseconds(600));
  EXPECT_EQ(summary().worlds, 1U);
  EXPECT_EQ(summary().lost, 0U);
  EXPECT_DOUBLE_EQ(*summary().outside_recovery, 1);

  // Fewer than the least are left: it recovers until another worker is ready.
  happens(event::Exited{0, 2, 0, SIGKILL});
  happens(event::Tick{}, milliseconds(100));
  runs(3);
  happens(event::WorkerReady{0, 3}, milliseconds(100));
  happens(event::Tick{}, milliseconds(0));
  happens(event::Tick{}, milliseconds(200));
  const JobSummary after = summary();
  EXPECT_EQ(after.time, milliseconds(1'000));
  EXPECT_EQ(after.worlds, 2U);
  EXPECT_EQ(after.size, 2U);
  EXPECT_EQ(after.lost, 1U);
  EXPECT_EQ(after.joined, 1U);
  EXPECT_DOUBLE_EQ(*after.outside_recovery, 0.8);
}

class HeldUpAccountTest : public JobAccountTest {
 protected:
  HeldUpAccountTest() : JobAccountTest(milliseconds(100)) {}
};

TEST_F(HeldUpAccountTest, DoesNotCountTheTimeInWhichHvdrunWasStopped) {
  runs(1);
  runs(2);
  happens(event::Exited{0, 2, 0, SIGKILL});
  happens(event::Tick{}, milliseconds(100));
  runs(3);
  happens(event::WorkerReady{0, 3}, milliseconds(100));
  happens(event::Tick{}, milliseconds(0));
  happens(event::Tick{}, milliseconds(200));
  happens(event::Resumed{milliseconds(60'000)}, milliseconds(60'000));
  happens(event::Tick{}, milliseconds(100));  // what lies unread is read meanwhile
  const JobSummary after = summary();
  EXPECT_EQ(after.time, milliseconds(60'500));
  EXPECT_EQ(after.held_up, milliseconds(60'100));
  EXPECT_DOUBLE_EQ(*after.outside_recovery, 0.5);
}

TEST(JobAccount, KnowsNoShareWithoutAWorld) {
  const Job job{JobOptions()};
  EXPECT_FALSE(JobAccount().summary(job, Clock::now()).outside_recovery);
}

}  // namespace
}  // namespace hvd::driver
