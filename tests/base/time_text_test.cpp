#include <gtest/gtest.h>

#include "base/clock.h"

namespace hvd {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

TEST(TimeText, HasTenthsOnlyWhereThereAreSome) {
  EXPECT_EQ(seconds_text(Duration::zero()), "0 s");
  EXPECT_EQ(seconds_text(milliseconds(300)), "0.3 s");
  EXPECT_EQ(seconds_text(milliseconds(1500)), "1.5 s");
  EXPECT_EQ(seconds_text(std::chrono::hours(1)), "3600 s");
}

TEST(TimeText, RoundsUp) {
  EXPECT_EQ(seconds_text(nanoseconds(1)), "0.1 s");
  EXPECT_EQ(seconds_text(milliseconds(250)), "0.3 s");
  EXPECT_EQ(seconds_text(milliseconds(9901)), "10 s");
}

}  // namespace
}  // namespace hvd
