#include "driver/job/job_time.h"

#include <gtest/gtest.h>

namespace hvd::driver {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPace{300};

TimePoint at_ms(int ms) { return TimePoint{std::chrono::hours(1)} + milliseconds(ms); }

// Looked at in time until then.
JobTime running_until(int end) {
  JobTime time(kPace);
  for (int ms = 0; ms <= end; ms += 100) EXPECT_EQ(time.look(at_ms(ms)), std::nullopt) << ms;
  return time;
}

TEST(JobTime, IsTheClocksAsLongAsNothingHoldsUp) {
  const JobTime time = running_until(10'000);
  EXPECT_EQ(time.own(at_ms(10'200)), at_ms(10'200));
  EXPECT_EQ(time.on_clock(at_ms(12'000)), at_ms(12'000));
  EXPECT_EQ(time.on_clock(kNever), kNever);
}

TEST(JobTime, AsksForALookInEachPace) {
  JobTime time(kPace);
  time.look(at_ms(0));
  EXPECT_EQ(time.next_look(), at_ms(300));
  time.look(at_ms(200));
  EXPECT_EQ(time.next_look(), at_ms(300));
  time.look(at_ms(310));
  EXPECT_EQ(time.next_look(), at_ms(610));
}

TEST(JobTime, StandsStillDuringAHoldUpAndForOnePaceMore) {
  JobTime time = running_until(2'000);
  EXPECT_EQ(time.own(at_ms(42'000)), at_ms(2'000));  // before it is found, too
  EXPECT_EQ(time.look(at_ms(42'000)), Duration(milliseconds(40'000)));
  EXPECT_EQ(time.own(at_ms(42'000)), at_ms(2'000));
  EXPECT_EQ(time.look(at_ms(42'300)), std::nullopt);
  EXPECT_EQ(time.own(at_ms(42'300)), at_ms(2'000));
  EXPECT_EQ(time.own(at_ms(42'400)), at_ms(2'100));
  EXPECT_EQ(time.on_clock(at_ms(2'100)), at_ms(42'400));
}

// Everything that was due comes when the hold-up is over, and not before.
TEST(JobTime, NothingIsDueWhileItStandsStill) {
  JobTime time = running_until(2'000);
  time.look(at_ms(42'000));
  EXPECT_EQ(time.on_clock(at_ms(1'000)), at_ms(42'300));
  EXPECT_EQ(time.on_clock(at_ms(2'000)), at_ms(42'300));
}

TEST(JobTime, AGapOfAThirdOverThreePacesIsNoHoldUp) {
  JobTime time = running_until(2'000);
  EXPECT_EQ(time.look(at_ms(3'000)), std::nullopt);
  EXPECT_EQ(time.own(at_ms(3'000)), at_ms(3'000));
  EXPECT_NE(time.look(at_ms(4'001)), std::nullopt);
  EXPECT_EQ(time.own(at_ms(4'001)), at_ms(3'000));
}

TEST(JobTime, OfHoldUpsInARowEachCountsAsOnePace) {
  JobTime time = running_until(2'000);
  for (int times = 0; times < 10; ++times) {
    const int ms = 7'000 + 5'000 * times;
    // Late again before the pace that follows a hold-up was over.
    EXPECT_EQ(time.look(at_ms(ms)), Duration(milliseconds(5'000)));
    EXPECT_EQ(time.own(at_ms(ms)), at_ms(2'000) + times * kPace);
  }
}

TEST(JobTime, WithoutAPaceNothingIsAHoldUp) {
  JobTime time(milliseconds(0));
  EXPECT_EQ(time.look(at_ms(0)), std::nullopt);
  EXPECT_EQ(time.look(at_ms(1'000'000)), std::nullopt);
  EXPECT_EQ(time.own(at_ms(1'000'000)), at_ms(1'000'000));
  EXPECT_EQ(time.next_look(), kNever);
}

TEST(JobTime, AKnownStopCountsHoweverShortItWas) {
  JobTime time = running_until(2'000);
  time.stopped(milliseconds(50), at_ms(2'100));
  EXPECT_EQ(time.look(at_ms(2'100)), std::nullopt);
  EXPECT_EQ(time.own(at_ms(2'100)), at_ms(2'050));
  EXPECT_EQ(time.own(at_ms(2'400)), at_ms(2'050));
  EXPECT_EQ(time.own(at_ms(2'500)), at_ms(2'150));
}

TEST(JobTime, AStopThatIsKnownIsNoHoldUp) {
  JobTime time = running_until(2'000);
  time.stopped(std::chrono::hours(1), at_ms(2'100) + std::chrono::hours(1));
  EXPECT_EQ(time.look(at_ms(2'100) + std::chrono::hours(1)), std::nullopt);
  EXPECT_EQ(time.own(at_ms(2'400) + std::chrono::hours(1)), at_ms(2'100));
}

}  // namespace
}  // namespace hvd::driver
