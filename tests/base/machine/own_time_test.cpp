#include "base/machine/own_time.h"

#include <gtest/gtest.h>

namespace hvd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr TimePoint kBegin{seconds(1000)};
constexpr milliseconds kPace{100};

TEST(OwnTime, AFreshOneKnowsNoStops) {
  OwnTime time(kPace);
  EXPECT_EQ(time.stopped_between(kBegin, kBegin + seconds(100)), Duration::zero());
}

TEST(OwnTime, AGapOfMoreThanThreePacesIsAStop) {
  OwnTime time(kPace);
  time.look(kBegin);
  const auto busy = kBegin + 3 * kPace;
  EXPECT_EQ(time.stopped_between(kBegin, busy), Duration::zero());
  time.look(busy);
  EXPECT_EQ(time.stopped_between(kBegin, busy), Duration::zero());
  // All but the pace in which a look would have come anyway.
  const auto after = busy + seconds(40);
  EXPECT_EQ(time.stopped_between(kBegin, after), seconds(40) - kPace);
  time.look(after);
  EXPECT_EQ(time.stopped_between(kBegin, after), seconds(40) - kPace);
  EXPECT_EQ(time.stopped_between(after, after + kPace), Duration::zero());
}

TEST(OwnTime, CountsOnlyWhatLiesBetween) {
  OwnTime time(kPace);
  time.look(kBegin);
  time.look(kBegin + seconds(10));
  time.look(kBegin + seconds(20));
  const auto second = kBegin + seconds(10) + kPace;
  EXPECT_EQ(time.stopped_between(kBegin + seconds(5), second + seconds(1)), seconds(6));
  EXPECT_EQ(time.stopped_between(kBegin, kBegin + seconds(20)), 2 * (seconds(10) - kPace));
}

TEST(OwnDeadline, IsPutOffByAStopOfThisProcess) {
  // This process "was stopped" from now on for a while, as its clock shows when it looks again.
  const TimePoint begin = Clock::now();
  OwnDeadline deadline(begin, milliseconds(200));
  EXPECT_FALSE(deadline.passed(begin + milliseconds(199)));
  EXPECT_TRUE(deadline.passed(begin + milliseconds(200)));
  look_at_own_time(begin - seconds(100));
  look_at_own_time(Clock::now());
  EXPECT_FALSE(OwnDeadline(begin - seconds(90), seconds(1)).passed(begin));
  EXPECT_TRUE(OwnDeadline(begin - seconds(200), seconds(1)).passed(begin));
}

}  // namespace
}  // namespace hvd
