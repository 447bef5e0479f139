#include "runtime/core/silence.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace hvd::test {
namespace {

using runtime::Silence;
using std::chrono::seconds;

constexpr seconds kLimit{32};

TimePoint at(int second) { return TimePoint(seconds(1'000 + second)); }

// `moved_at(second)`: the bytes that have moved by then. Returns the second at which the silence is
// over; 1,000: it goes on.
template <typename MovedAt>
int end_of(MovedAt moved_at) {
  Silence silence(at(0), kLimit);
  for (int second = 0; second < 1'000; ++second) {
    if (at(second) < silence.next_look()) continue;
    if (silence.is_over(moved_at(second), at(second))) return second;
  }
  return 1'000;
}

TEST(Silence, IsOverAfterTheLimitOrALittleLater) {
  const int end = end_of([](int) { return 7; });
  EXPECT_GE(end, 32);
  EXPECT_LE(end, 34);
}

TEST(Silence, BeginsAnewWithEachByte) {
  const int end = end_of([](int second) { return std::min(second / 30, 10); });  // until 300
  EXPECT_GE(end, 300 + 32);
  EXPECT_LE(end, 300 + 32 + 4);
}

TEST(Silence, NeverEndsAWaitInWhichBytesTrickle) {
  EXPECT_EQ(end_of([](int second) { return second / 30; }), 1'000);
}

}  // namespace
}  // namespace hvd::test
