// Which algorithm an operation between hosts takes.
#include "runtime/ops/algorithm_choice.h"

#include <cstdint>
#include <gtest/gtest.h>
#include <limits>

namespace hvd::test {
namespace {

using runtime::Algorithm;
using runtime::LinkSpeed;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::size_t kFew = std::size_t{256} << 10;
constexpr std::size_t kMegabyte = std::size_t{1} << 20;

Algorithm choice(int hosts, std::size_t bytes, const LinkSpeed& speed) {
  return choose_allreduce({hosts, true}, bytes, speed, kFew);
}

TEST(AllreduceChoice, SizeAloneDecidesWhileTheRoundTripIsNotKnown) {
  for (const int hosts : {2, 3, 4, 64}) {
    EXPECT_EQ(choice(hosts, kFew, {}), Algorithm::doubling) << hosts;
    EXPECT_EQ(choice(hosts, kFew + 1, {}), Algorithm::ring) << hosts;
    EXPECT_EQ(choice(hosts, kFew + 1, {microseconds(0), 100}), Algorithm::ring) << hosts;
  }
}

TEST(AllreduceChoice, AShortRoundTripOfFewHostsChangesNothing) {
  for (const int hosts : {2, 3, 4}) {
    for (const std::uint32_t rate : {0U, 100U, 1'000U}) {
      EXPECT_EQ(choice(hosts, 4, {microseconds(20), rate}), Algorithm::doubling);
      EXPECT_EQ(choice(hosts, 16 * kMegabyte, {microseconds(20), rate}), Algorithm::ring)
          << hosts << " hosts, " << rate << " MB/s";
    }
  }
}

// Too many to send to each other at the same time.
constexpr int kManyHosts = 32;

TEST(AllreduceChoice, WithLatencyFewStepsCarryMore) {
  const LinkSpeed far{microseconds(2'000), 1'000};
  EXPECT_EQ(choice(kManyHosts, kMegabyte, far), Algorithm::doubling);
  EXPECT_EQ(choice(kManyHosts, 8 * kMegabyte, far), Algorithm::halving);
  // The ring hides its latency behind long blocks; the more hosts, the shorter they are.
  EXPECT_EQ(choice(kManyHosts, 256 * kMegabyte, far), Algorithm::ring);
  EXPECT_EQ(choice(4, 4 * kMegabyte, far), Algorithm::halving);
  EXPECT_EQ(choice(4, 8 * kMegabyte, far), Algorithm::ring);
}

TEST(AllreduceChoice, OfFewHostsEachSendsToEachWhereLatencyCounts) {
  const LinkSpeed far{microseconds(5'000), 1'000};
  for (const int hosts : {3, 4, 5, 8, 16}) {
    EXPECT_EQ(choice(hosts, kMegabyte, far), Algorithm::direct) << hosts;
    EXPECT_EQ(choice(hosts, kFew, far), Algorithm::doubling) << hosts;
    EXPECT_NE(choice(hosts, 64 * kMegabyte, far), Algorithm::direct) << hosts;
    EXPECT_EQ(choose_allreduce({hosts, false}, kMegabyte, far, kFew), Algorithm::direct) << hosts;
  }
  for (const int hosts : {2, 17, kManyHosts}) {
    EXPECT_NE(choice(hosts, kMegabyte, far), Algorithm::direct) << hosts;
  }
}

TEST(AllreduceChoice, OnASlowLinkBytesCountForMore) {
  const microseconds round_trip(2'000);
  EXPECT_EQ(choice(kManyHosts, kMegabyte, {round_trip, 10'000}), Algorithm::doubling);
  EXPECT_EQ(choice(kManyHosts, kMegabyte, {round_trip, 100}), Algorithm::halving);
}

TEST(AllreduceChoice, DoublingWaitsForTheBandwidth) {
  EXPECT_EQ(choice(kManyHosts, kMegabyte, {microseconds(2'000), 0}), Algorithm::halving);
  EXPECT_EQ(choice(24, kMegabyte, {microseconds(20'000), 0}), Algorithm::ring);
}

TEST(AllreduceChoice, DoublingIsForHostsOfOneRank) {
  const LinkSpeed far{microseconds(2'000), 10'000};
  EXPECT_EQ(choose_allreduce({kManyHosts, true}, kMegabyte, far, kFew), Algorithm::doubling);
  EXPECT_EQ(choose_allreduce({kManyHosts, false}, kMegabyte, far, kFew), Algorithm::halving);
  EXPECT_EQ(choose_allreduce({kManyHosts, false}, kFew, far, kFew), Algorithm::doubling);
}

TEST(AllreduceChoice, OnlyAPowerOfTwoIsHalved) {
  const LinkSpeed far{microseconds(5'000), 1'000};
  for (const int hosts : {3, 5, 6, 7, 12, 24}) {
    for (std::size_t bytes = 4; bytes < 1024 * kMegabyte; bytes *= 2) {
      EXPECT_NE(choice(hosts, bytes, far), Algorithm::halving) << hosts << ' ' << bytes;
    }
  }
}

TEST(AllreduceChoice, ExtremeMeasurementsDoNotOverflow) {
  constexpr auto kMost = std::numeric_limits<std::uint32_t>::max();
  constexpr std::size_t kTerabyte = std::size_t{1} << 40;
  EXPECT_EQ(choice(64, kMegabyte, {microseconds(kMost), 1}), Algorithm::doubling);
  EXPECT_EQ(choice(64, kTerabyte, {microseconds(kMost), kMost}), Algorithm::halving);
  EXPECT_EQ(choice(64, kTerabyte, {microseconds(1), 1}), Algorithm::ring);
  EXPECT_EQ(choice(10'000, kTerabyte, {microseconds(1), 1}), Algorithm::ring);
}

// The time that was made up of latency and bandwidth gives the bandwidth back.
TEST(AllreduceChoice, TheBandwidthIsWhatLatencyLeaves) {
  const LinkSpeed speed{microseconds(2'000), 0};
  const auto bandwidth = [&speed](Algorithm algorithm, std::size_t bytes,
                                  std::chrono::microseconds taken) {
    const auto [sent, rest] = transfer_of(algorithm, 4, bytes, speed, taken);
    return static_cast<double>(sent) / 1e6 / std::chrono::duration<double>(rest).count();
  };
  constexpr std::size_t kBytes = 64'000'000;  // of which 96,000,000 leave a host, in 96 ms
  EXPECT_NEAR(bandwidth(Algorithm::ring, kBytes, milliseconds(97)), 1'000, 10);
  EXPECT_NEAR(bandwidth(Algorithm::halving, kBytes, milliseconds(100)), 1'000, 10);
  // 96 ms, and 16 for the additions.
  EXPECT_NEAR(bandwidth(Algorithm::direct, kBytes, milliseconds(114)), 1'000, 10);
  // 128 ms, and 32 for the additions.
  EXPECT_NEAR(bandwidth(Algorithm::doubling, kBytes, milliseconds(162)), 1'000, 10);
  // Where latency may explain all of it, half of it is taken to be bandwidth.
  EXPECT_NEAR(bandwidth(Algorithm::ring, 4'000'000, milliseconds(6)), 2'000, 10);
}

TEST(ExchangeChoice, IsTheRingUnlessItsStepsAreWhatTakesTheTime) {
  const LinkSpeed far{microseconds(5'000), 1'000};
  for (const int hosts : {3, 4, 5, 16}) {
    EXPECT_TRUE(runtime::goes_directly(hosts, kMegabyte, far)) << hosts;
    EXPECT_FALSE(runtime::goes_directly(hosts, kMegabyte, {})) << hosts;
    EXPECT_FALSE(runtime::goes_directly(hosts, kMegabyte, {microseconds(0), 1'000})) << hosts;
    EXPECT_FALSE(runtime::goes_directly(hosts, 64 * kMegabyte, far)) << hosts;
    EXPECT_FALSE(runtime::goes_directly(hosts, 16 * kMegabyte, {microseconds(20), 1'000})) << hosts;
  }
  EXPECT_FALSE(runtime::goes_directly(2, kMegabyte, far));
  EXPECT_FALSE(runtime::goes_directly(17, kMegabyte, far));
}

}  // namespace
}  // namespace hvd::test
