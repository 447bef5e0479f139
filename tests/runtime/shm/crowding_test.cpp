#include "runtime/shm/crowding.h"

#include <gtest/gtest.h>

namespace hvd::test {
namespace {

using runtime::Crowding;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr TimePoint kBegin{std::chrono::hours(1)};

TEST(Crowding, ThereIsNoneWhereRanksShareCoresWithEachOtherAlone) {
  Crowding crowding(2);
  Crowding crowding_of_many(4);
  for (int i = 0; i < 50; ++i) {
    crowding.passed(100, 100 * microseconds(100), kBegin);
    EXPECT_FALSE(crowding.is_crowded(kBegin));
    crowding_of_many.passed(100, 100 * microseconds(200), kBegin);
    EXPECT_FALSE(crowding_of_many.is_crowded(kBegin));
  }
  crowding.passed(100, 100 * microseconds(200), kBegin);
  EXPECT_TRUE(crowding.is_crowded(kBegin));
}

TEST(Crowding, IsPresumedForASecond) {
  Crowding crowding(2);
  EXPECT_FALSE(crowding.is_crowded(kBegin)) << "nothing is known yet";
  crowding.passed(100, 100 * milliseconds(1), kBegin);
  EXPECT_TRUE(crowding.is_crowded(kBegin + milliseconds(999)));
  EXPECT_FALSE(crowding.is_crowded(kBegin + seconds(1)));
}

TEST(Crowding, IsPresumedForLongerIfItIsFoundAgain) {
  Crowding crowding(2);
  TimePoint now = kBegin;
  for (const auto wanted : {1, 2, 4, 8, 16, 16}) {
    crowding.passed(100, 100 * milliseconds(1), now);
    now += seconds(wanted) - milliseconds(1);
    EXPECT_TRUE(crowding.is_crowded(now)) << wanted;
    now += milliseconds(1);
    EXPECT_FALSE(crowding.is_crowded(now)) << wanted;
  }

  // It was over meanwhile.
  crowding.passed(100, 100 * microseconds(1), now);
  crowding.passed(100, 100 * milliseconds(1), now);
  EXPECT_TRUE(crowding.is_crowded(now + milliseconds(999)));
  EXPECT_FALSE(crowding.is_crowded(now + seconds(1)));
}

TEST(Crowding, FewChunksAreJudgedTogether) {
  Crowding crowding(2);
  for (int i = 0; i < 7; ++i) {
    crowding.passed(8, i == 0 ? seconds(1) : seconds(0), kBegin);
    EXPECT_FALSE(crowding.is_crowded(kBegin)) << i;
  }
  crowding.passed(8, seconds(0), kBegin);
  EXPECT_TRUE(crowding.is_crowded(kBegin));
}

}  // namespace
}  // namespace hvd::test
