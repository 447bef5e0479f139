#include "runtime/core/link_speed.h"

#include <gtest/gtest.h>
#include <utility>

namespace hvd::test {
namespace {

using runtime::LinkMeter;
using runtime::LinkSpeed;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::size_t kBytes = 100'000'000;

std::uint32_t rate(const LinkMeter& meter) { return meter.speed().megabytes_per_second; }

TEST(LinkSpeed, IsUnknownUntilItIsMeasured) {
  LinkMeter meter;
  EXPECT_EQ(meter.speed(), LinkSpeed());
  meter.set_round_trip(microseconds(300));
  meter.add_transfer(LinkMeter::kLeastBytes - 1, milliseconds(1));
  EXPECT_EQ(meter.speed(), (LinkSpeed{microseconds(300), 0}));
  meter.add_transfer(kBytes, milliseconds(100));
  EXPECT_EQ(meter.speed(), (LinkSpeed{microseconds(300), 1'000}));
}

TEST(LinkSpeed, SlowTransfersAmongFastOnesDoNotCount) {
  LinkMeter meter;
  for (int i = 0; i < 10 * LinkMeter::kTransfers; ++i) {
    meter.add_transfer(kBytes, milliseconds(i % LinkMeter::kTransfers == 0 ? 100 : 700));
    ASSERT_EQ(rate(meter), 1'000U) << i;
  }
}

TEST(LinkSpeed, FollowsALinkThatHasChanged) {
  LinkMeter meter;
  meter.add_transfer(kBytes, milliseconds(100));
  for (const auto& [taken, wanted] : {std::pair(50, 2'000U), std::pair(1'000, 100U)}) {
    for (int i = 0; i < LinkMeter::kTransfers; ++i) meter.add_transfer(kBytes, milliseconds(taken));
    EXPECT_EQ(rate(meter), wanted);
  }
}

TEST(LinkSpeed, StaysWithinAQuarter) {
  LinkMeter meter;
  meter.add_transfer(kBytes, milliseconds(100));
  for (int i = 0; i < 10 * LinkMeter::kTransfers; ++i) {
    meter.add_transfer(kBytes, milliseconds(i % 100 < 50 ? 85 : 120));
    ASSERT_EQ(rate(meter), 1'000U) << i;
  }
}

TEST(LinkSpeed, AKnownSpeedIsNotMeasured) {
  const LinkSpeed known{microseconds(10), 50};
  LinkMeter meter(known);
  meter.set_round_trip(microseconds(300));
  meter.add_transfer(kBytes, milliseconds(100));
  EXPECT_EQ(meter.speed(), known);
}

TEST(LinkSpeed, ATransferWithoutTimeIsIgnored) {
  LinkMeter meter;
  meter.add_transfer(kBytes, Duration::zero());
  EXPECT_EQ(rate(meter), 0U);
}

}  // namespace
}  // namespace hvd::test
