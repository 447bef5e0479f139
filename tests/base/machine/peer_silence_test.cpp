#include <gtest/gtest.h>

#include "base/machine/own_time.h"

namespace hvd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr TimePoint kFirst{seconds(1000)};
constexpr seconds kSilence{3};

// Looks as often as it has to, until then.
TimePoint look_until(PeerSilence& silence, TimePoint from, TimePoint until) {
  for (TimePoint now = from; now < until; now += silence.pace()) silence.look(now);
  silence.look(until);
  return until;
}

TEST(PeerSilence, IsTooLongAfterTheLimit) {
  PeerSilence silence(kSilence, kFirst);
  EXPECT_EQ(silence.pace(), milliseconds(300));
  look_until(silence, kFirst, kFirst + kSilence);
  EXPECT_FALSE(silence.is_too_long(kFirst + kSilence));
  EXPECT_TRUE(silence.is_too_long(kFirst + kSilence + milliseconds(1)));
}

TEST(PeerSilence, BeginsAnewWithEachSignOfLife) {
  PeerSilence silence(kSilence, kFirst);
  const TimePoint heard = look_until(silence, kFirst, kFirst + seconds(2));
  silence.hear(heard);
  look_until(silence, heard, heard + kSilence);
  EXPECT_FALSE(silence.is_too_long(heard + kSilence));
  EXPECT_TRUE(silence.is_too_long(heard + kSilence + milliseconds(1)));
}

TEST(PeerSilence, DoesNotCountTheTimeInWhichTheJudgeWasStopped) {
  PeerSilence silence(kSilence, kFirst);
  const TimePoint stopped = look_until(silence, kFirst, kFirst + seconds(2));
  const TimePoint goes_on = stopped + seconds(1000);
  EXPECT_FALSE(silence.is_too_long(goes_on)) << "also before it has looked";
  silence.look(goes_on);
  EXPECT_FALSE(silence.is_too_long(goes_on));
  // Two seconds before the stop, a pace that it would have slept anyway, and these.
  const TimePoint end = look_until(silence, goes_on, goes_on + milliseconds(700));
  EXPECT_FALSE(silence.is_too_long(end));
  EXPECT_TRUE(silence.is_too_long(end + milliseconds(1)));
}

TEST(PeerSilence, AShortLimitHasAPaceAllTheSame) {
  EXPECT_EQ(PeerSilence(milliseconds(1), kFirst).pace(), milliseconds(1));
}

}  // namespace
}  // namespace hvd
