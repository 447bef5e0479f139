// Which algorithm an allreduce between hosts takes.
#include "runtime/ops/allreduce_choice.h"

#include <cstdint>
#include <gtest/gtest.h>
#include <limits>

namespace hvd::test {
namespace {

using runtime::AllreduceAlgorithm;
using runtime::LinkSpeed;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::size_t kFew = std::size_t{256} << 10;
constexpr std::size_t kMegabyte = std::size_t{1} << 20;

AllreduceAlgorithm choice(int hosts, std::size_t bytes, const LinkSpeed& speed) {
  return choose_allreduce({hosts, true}, bytes, speed, kFew);
}

TEST(AllreduceChoice, SizeAloneDecidesWhileTheRoundTripIsNotKnown) {
  for (const int hosts : {2, 3, 4, 64}) {
    EXPECT_EQ(choice(hosts, kFew, {}), AllreduceAlgorithm::doubling) << hosts;
    EXPECT_EQ(choice(hosts, kFew + 1, {}), AllreduceAlgorithm::ring) << hosts;
    EXPECT_EQ(choice(hosts, kFew + 1, {microseconds(0), 100}), AllreduceAlgorithm::ring) << hosts;
  }
}

TEST(AllreduceChoice, AShortRoundTripOfFewHostsChangesNothing) {
  for (const int hosts : {2, 3, 4}) {
    for (const std::uint32_t rate : {0U, 100U, 1'000U}) {
      EXPECT_EQ(choice(hosts, 4, {microseconds(20), rate}), AllreduceAlgorithm::doubling);
      EXPECT_EQ(choice(hosts, 16 * kMegabyte, {microseconds(20), rate}), AllreduceAlgorithm::ring)
          << hosts << " hosts, " << rate << " MB/s";
    }
  }
}

TEST(AllreduceChoice, WithLatencyFewStepsCarryMore) {
  const LinkSpeed far{microseconds(2'000), 1'000};
  EXPECT_EQ(choice(4, kMegabyte, far), AllreduceAlgorithm::doubling);
  EXPECT_EQ(choice(4, 4 * kMegabyte, far), AllreduceAlgorithm::halving);
  // The ring hides its latency behind long blocks; the more hosts, the shorter they are.
  EXPECT_EQ(choice(4, 8 * kMegabyte, far), AllreduceAlgorithm::ring);
  EXPECT_EQ(choice(16, 8 * kMegabyte, far), AllreduceAlgorithm::halving);
  EXPECT_EQ(choice(16, 256 * kMegabyte, far), AllreduceAlgorithm::ring);
}

TEST(AllreduceChoice, OnASlowLinkBytesCountForMore) {
  const microseconds round_trip(2'000);
  EXPECT_EQ(choice(4, kMegabyte, {round_trip, 10'000}), AllreduceAlgorithm::doubling);
  EXPECT_EQ(choice(4, kMegabyte, {round_trip, 100}), AllreduceAlgorithm::halving);
}

TEST(AllreduceChoice, DoublingWaitsForTheBandwidth) {
  EXPECT_EQ(choice(4, kMegabyte, {microseconds(2'000), 0}), AllreduceAlgorithm::halving);
  EXPECT_EQ(choice(3, kMegabyte, {microseconds(20'000), 0}), AllreduceAlgorithm::ring);
}

TEST(AllreduceChoice, DoublingIsForHostsOfOneRank) {
  const LinkSpeed far{microseconds(2'000), 10'000};
  EXPECT_EQ(choose_allreduce({4, true}, kMegabyte, far, kFew), AllreduceAlgorithm::doubling);
  EXPECT_EQ(choose_allreduce({4, false}, kMegabyte, far, kFew), AllreduceAlgorithm::halving);
  EXPECT_EQ(choose_allreduce({4, false}, kFew, far, kFew), AllreduceAlgorithm::doubling);
}

TEST(AllreduceChoice, OnlyAPowerOfTwoIsHalved) {
  const LinkSpeed far{microseconds(5'000), 1'000};
  for (const int hosts : {3, 5, 6, 7, 12, 24}) {
    for (std::size_t bytes = 4; bytes < 1024 * kMegabyte; bytes *= 2) {
      EXPECT_NE(choice(hosts, bytes, far), AllreduceAlgorithm::halving) << hosts << ' ' << bytes;
    }
  }
}

TEST(AllreduceChoice, ExtremeMeasurementsDoNotOverflow) {
  constexpr auto kMost = std::numeric_limits<std::uint32_t>::max();
  constexpr std::size_t kTerabyte = std::size_t{1} << 40;
  EXPECT_EQ(choice(64, kMegabyte, {microseconds(kMost), 1}), AllreduceAlgorithm::doubling);
  EXPECT_EQ(choice(64, kTerabyte, {microseconds(kMost), kMost}), AllreduceAlgorithm::halving);
  EXPECT_EQ(choice(64, kTerabyte, {microseconds(1), 1}), AllreduceAlgorithm::ring);
  EXPECT_EQ(choice(10'000, kTerabyte, {microseconds(1), 1}), AllreduceAlgorithm::ring);
}

// The time that was made up of latency and bandwidth gives the bandwidth back.
TEST(AllreduceChoice, TheBandwidthIsWhatLatencyLeaves) {
  const LinkSpeed speed{microseconds(2'000), 0};
  const auto bandwidth = [&speed](AllreduceAlgorithm algorithm, std::size_t bytes,
                                  std::chrono::microseconds taken) {
    const auto [sent, rest] = transfer_of(algorithm, 4, bytes, speed, taken);
    return static_cast<double>(sent) / 1e6 / std::chrono::duration<double>(rest).count();
  };
  constexpr std::size_t kBytes = 64'000'000;  // of which 96,000,000 leave a host, in 96 ms
  EXPECT_NEAR(bandwidth(AllreduceAlgorithm::ring, kBytes, milliseconds(97)), 1'000, 10);
  EXPECT_NEAR(bandwidth(AllreduceAlgorithm::halving, kBytes, milliseconds(100)), 1'000, 10);
  // 128 ms, and 32 for the additions.
  EXPECT_NEAR(bandwidth(AllreduceAlgorithm::doubling, kBytes, milliseconds(162)), 1'000, 10);
  // Where latency may explain all of it, half of it is taken to be bandwidth.
  EXPECT_NEAR(bandwidth(AllreduceAlgorithm::ring, 4'000'000, milliseconds(6)), 2'000, 10);
}

}  // namespace
}  // namespace hvd::test
