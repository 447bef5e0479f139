#include "runtime/shm/window_writer.h"

#include <gtest/gtest.h>
#include <numeric>
#include <vector>

namespace hvd::test {
namespace {

using runtime::StoreChoice;
using runtime::WindowWriter;
using Stores = StoreChoice::Stores;

// What a choice takes on cores that do so many nanoseconds for each byte.
struct Cores {
  int cached;
  int streamed;
};
constexpr Cores kNear{10, 11};
constexpr Cores kFar{70, 10};

// How many of so many fills were streamed.
int streamed_of(StoreChoice& choice, int fills, Cores cores) {
  constexpr std::size_t kBytes = 100'000;
  int streamed = 0;
  for (int i = 0; i < fills; ++i) {
    const bool streams = choice.next() == Stores::streamed;
    streamed += streams ? 1 : 0;
    choice.took(kBytes,
                std::chrono::nanoseconds(kBytes) * (streams ? cores.streamed : cores.cached));
  }
  return streamed;
}

TEST(StoreChoice, BeginsWithTheCaches) { EXPECT_EQ(StoreChoice().next(), Stores::cached); }

TEST(StoreChoice, StaysWithTheCachesWhereTheyAreNoBurden) {
  StoreChoice choice;
  EXPECT_EQ(streamed_of(choice, 10 * StoreChoice::kPeriod, kNear), 10 * 2);
}

TEST(StoreChoice, GoesPastThemWhereTheyAreAndLooksAgainNowAndThen) {
  StoreChoice choice;
  streamed_of(choice, StoreChoice::kPeriod, kFar);
  EXPECT_EQ(streamed_of(choice, 10 * StoreChoice::kPeriod, kFar), 10 * (StoreChoice::kPeriod - 2));
}

TEST(StoreChoice, ChangesItsMindWithTheCores) {
  StoreChoice choice;
  streamed_of(choice, StoreChoice::kPeriod, kNear);
  // At once: it takes the time of all that it does.
  EXPECT_GE(streamed_of(choice, 10, kFar), 10 - 2 - 2);
  streamed_of(choice, StoreChoice::kPeriod, kNear);
  EXPECT_LE(streamed_of(choice, StoreChoice::kPeriod, kNear), 2);
}

TEST(StoreChoice, OneInterruptionSaysNothing) {
  StoreChoice choice;
  streamed_of(choice, StoreChoice::kPeriod / 2, kNear);
  ASSERT_EQ(choice.next(), Stores::cached);
  choice.took(100'000, std::chrono::milliseconds(50));
  EXPECT_EQ(choice.next(), Stores::cached);
  EXPECT_EQ(streamed_of(choice, 10, kNear), 0);
}

TEST(StoreChoice, ALongFillIsNotASlowOne) {
  StoreChoice choice;
  streamed_of(choice, StoreChoice::kPeriod, kNear);
  choice.took(1'000'000, std::chrono::nanoseconds(10'000'000));
  choice.took(1'000'000, std::chrono::nanoseconds(10'000'000));
  EXPECT_EQ(choice.next(), Stores::cached);
}

TEST(WindowWriter, WritesAllThatItIsGivenHoweverOften) {
  WindowWriter writer;
  std::vector<int> source(64 << 10);
  std::iota(source.begin(), source.end(), 1);
  const std::size_t bytes = source.size() * sizeof(int);
  for (int round = 0; round < 3 * StoreChoice::kPeriod; ++round) {
    std::vector<int> window(source.size());
    writer.write(bytes, [&](CopyFunction copy) { copy(window.data(), source.data(), bytes); });
    ASSERT_EQ(window, source) << round;
  }
}

TEST(WindowWriter, LittleStaysInTheCaches) {
  WindowWriter writer;
  for (int round = 0; round < 2 * StoreChoice::kPeriod; ++round) {
    writer.write(4096, [&](CopyFunction copy) { ASSERT_EQ(copy, bulk_copy); });
  }
}

}  // namespace
}  // namespace hvd::test
