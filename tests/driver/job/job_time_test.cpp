#include "driver/job/job_time.h"

#include <gtest/gtest.h>

namespace hvd::driver {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPace{300};

TimePoint at(int ms) { return TimePoint{std::chrono::hours(1)} + milliseconds(ms); }

// Looked at in time until then.
JobTime running_until(int end) {
  JobTime time(kPace);
  for (int ms = 0; ms <= end; ms += 100) EXPECT_EQ(time.look(at(ms)), std::nullopt) << ms;
  return time;
}

TEST(JobTime, IsTheClocksAsLongAsNothingHoldsUp) {
  const JobTime time = running_until(10'000);
  EXPECT_EQ(time.own(at(10'200)), at(10'200));
  EXPECT_EQ(time.on_clock(at(12'000)), at(12'000));
  EXPECT_EQ(time.on_clock(kNever), kNever);
}

TEST(JobTime, AsksForALookInEachPace) {
  JobTime time(kPace);
  time.look(at(0));
  EXPECT_EQ(time.next_look(), at(300));
  time.look(at(200));
  EXPECT_EQ(time.next_look(), at(300));
  time.look(at(310));
  EXPECT_EQ(time.next_look(), at(610));
}

TEST(JobTime, StandsStillDuringAHoldUpAndForOnePaceMore) {
  JobTime time = running_until(2'000);
  EXPECT_EQ(time.own(at(42'000)), at(2'000));  // before it is found, too
  EXPECT_EQ(time.look(at(42'000)), Duration(milliseconds(40'000)));
  EXPECT_EQ(time.own(at(42'000)), at(2'000));
  EXPECT_EQ(time.look(at(42'300)), std::nullopt);
  EXPECT_EQ(time.own(at(42'300)), at(2'000));
  EXPECT_EQ(time.own(at(42'400)), at(2'100));
  EXPECT_EQ(time.on_clock(at(2'100)), at(42'400));
}

// Everything that was due comes when the hold-up is over, and not before.
TEST(JobTime, NothingIsDueWhileItStandsStill) {
  JobTime time = running_until(2'000);
  time.look(at(42'000));
  EXPECT_EQ(time.on_clock(at(1'000)), at(42'300));
  EXPECT_EQ(time.on_clock(at(2'000)), at(42'300));
}

TEST(JobTime, AGapOfAThirdOverThreePacesIsNoHoldUp) {
  JobTime time = running_until(2'000);
  EXPECT_EQ(time.look(at(3'000)), std::nullopt);
  EXPECT_EQ(time.own(at(3'000)), at(3'000));
  EXPECT_NE(time.look(at(4'001)), std::nullopt);
  EXPECT_EQ(time.own(at(4'001)), at(3'000));
}

TEST(JobTime, OfHoldUpsInARowEachCountsAsOnePace) {
  JobTime time = running_until(2'000);
  for (int times = 0; times < 10; ++times) {
    const int ms = 7'000 + 5'000 * times;
    // Late again before the pace that follows a hold-up was over.
    EXPECT_EQ(time.look(at(ms)), Duration(milliseconds(5'000)));
    EXPECT_EQ(time.own(at(ms)), at(2'000) + times * kPace);
  }
}

TEST(JobTime, WithoutAPaceNothingIsAHoldUp) {
  JobTime time(milliseconds(0));
  EXPECT_EQ(time.look(at(0)), std::nullopt);
  EXPECT_EQ(time.look(at(1'000'000)), std::nullopt);
  EXPECT_EQ(time.own(at(1'000'000)), at(1'000'000));
  EXPECT_EQ(time.next_look(), kNever);
}

TEST(JobTime, AKnownStopCountsHoweverShortItWas) {
  JobTime time = running_until(2'000);
  time.stopped(milliseconds(50), at(2'100));
  EXPECT_EQ(time.look(at(2'100)), std::nullopt);
  EXPECT_EQ(time.own(at(2'100)), at(2'050));
  EXPECT_EQ(time.own(at(2'400)), at(2'050));
  EXPECT_EQ(time.own(at(2'500)), at(2'150));
}

TEST(JobTime, AStopThatIsKnownIsNoHoldUp) {
  JobTime time = running_until(2'000);
  time.stopped(std::chrono::hours(1), at(2'100) + std::chrono::hours(1));
  EXPECT_EQ(time.look(at(2'100) + std::chrono::hours(1)), std::nullopt);
  EXPECT_EQ(time.own(at(2'400) + std::chrono::hours(1)), at(2'100));
}

}  // namespace
}  // namespace hvd::driver
