// How long a driver was silent, as an agent and its reapers count it: what they saw, and when.
#include "cmd/hvd-agent/orphan_timer.h"

#include <gtest/gtest.h>

namespace hvd::agent {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr TimePoint kFirst{seconds(1000)};
constexpr milliseconds kSilenceLimit{16'000};  // a look each second

TimePoint moment(double seconds_after_begin) {
  return kFirst + milliseconds(static_cast<int>(seconds_after_begin * 1000));
}

// Looks as an event loop does, whenever it is due, up to then. The moment at which the silence was
// over, in milliseconds after the beginning; -1: it was not.
int run(OrphanTimer& silence, double from, double to, bool driver_is_stopped = false) {
  for (TimePoint now = moment(from); now <= moment(to); now += milliseconds(1)) {
    if (now < silence.next_look()) continue;
    if (silence.look(now, driver_is_stopped)) {
      return static_cast<int>((now - kFirst) / milliseconds(1));
    }
  }
  return -1;
}

TEST(OrphanTimer, IsOverAfterItsLimit) {
  OrphanTimer silence(kSilenceLimit, kFirst);
  EXPECT_EQ(run(silence, 0, 60), 16'000);
}

TEST(OrphanTimer, BeginsAgainWithEachMessage) {
  OrphanTimer silence(kSilenceLimit, kFirst);
  ASSERT_EQ(run(silence, 0, 15), -1);
  silence.heard(moment(15));
  EXPECT_EQ(run(silence, 15, 60), 31'000);
}

TEST(OrphanTimer, WithoutALimitIsNeverOver) {
  OrphanTimer silence(milliseconds(0), kFirst);
  EXPECT_EQ(silence.next_look(), kNever);
  EXPECT_FALSE(silence.look(moment(1e6), false));
}

TEST(OrphanTimer, TimeInWhichWeWereStoppedDoesNotCount) {
  OrphanTimer silence(kSilenceLimit, kFirst);
  ASSERT_EQ(run(silence, 0, 10), -1);
  // Stopped at 10 s, for 40 s. But for the second in which a look would have come anyway all of it
  // is put off.
  ASSERT_FALSE(silence.look(moment(50), false));
  EXPECT_EQ(run(silence, 50, 120), 16'000 + 39'000);
}

TEST(OrphanTimer, AShortDelayOfOurOwnCounts) {
  OrphanTimer silence(kSilenceLimit, kFirst);
  ASSERT_EQ(run(silence, 0, 10), -1);
  ASSERT_FALSE(silence.look(moment(12.5), false));
  EXPECT_EQ(run(silence, 12.5, 60), 16'000);
}

TEST(OrphanTimer, StopsAddUp) {
  OrphanTimer silence(kSilenceLimit, kFirst);
  ASSERT_EQ(run(silence, 0, 5), -1);
  ASSERT_FALSE(silence.look(moment(25), false));  // 19 s
  ASSERT_EQ(run(silence, 25, 30), -1);
  ASSERT_FALSE(silence.look(moment(60), false));  // 29 s
  EXPECT_EQ(run(silence, 60, 120), 16'000 + 48'000);
}

TEST(OrphanTimer, ADriverOfThisMachineThatIsStoppedIsNotSilent) {
  OrphanTimer silence(kSilenceLimit, kFirst);
  ASSERT_EQ(run(silence, 0, 10), -1);
  ASSERT_EQ(run(silence, 10, 300, true), -1);
  // Whether it went on right after the last look is not known: the next one begins the limit.
  EXPECT_EQ(run(silence, 300.001, 400), 301'000 + 16'000);
}

TEST(OrphanTimer, TellsForHowLongWeWereStopped) {
  OrphanTimer silence(kSilenceLimit, kFirst);
  ASSERT_EQ(run(silence, 0, 10), -1);
  EXPECT_EQ(silence.stopped_between(moment(9), moment(12)), Duration::zero());
  EXPECT_EQ(silence.stopped_between(moment(9), moment(50)),
            seconds(39));  // before any look has seen it
  ASSERT_FALSE(silence.look(moment(50), false));
  EXPECT_EQ(silence.stopped_between(moment(9), moment(50)), seconds(39));
  EXPECT_EQ(silence.stopped_between(moment(20), moment(30)), seconds(10));
  EXPECT_EQ(silence.stopped_between(moment(50), moment(51)), Duration::zero());
}

}  // namespace
}  // namespace hvd::agent
