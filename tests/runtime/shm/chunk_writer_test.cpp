#include "runtime/shm/chunk_writer.h"

#include <gtest/gtest.h>
#include <numeric>
#include <vector>

namespace hvd::test {
namespace {

using runtime::ChunkWriter;
using runtime::StoreChoice;
using Stores = StoreChoice::Stores;

// The durations of fills on cores that need so many picoseconds for each byte.
struct Cores {
  int cached;
  int streamed;
};
constexpr Cores kNear{60, 90};
constexpr Cores kFar{430, 90};

constexpr std::size_t kBytes = 250'000;

// Returns how many of so many fills were streamed.
int streamed_of(StoreChoice& choice, int fills, Cores cores) {
  int streamed = 0;
  for (int i = 0; i < fills; ++i) {
    const auto stores = choice.next();
    const bool streams = stores == Stores::streamed;
    streamed += streams ? 1 : 0;
    const auto pace = static_cast<std::size_t>(streams ? cores.streamed : cores.cached);
    choice.took(stores, kBytes, std::chrono::nanoseconds(kBytes * pace / 1000));
  }
  return streamed;
}

// A choice behind its first trial.
StoreChoice choice_among(Cores cores) {
  StoreChoice choice;
  streamed_of(choice, StoreChoice::kUntilFirstTrial + StoreChoice::kTrial, cores);
  return choice;
}

constexpr int kHalf = StoreChoice::kTrial / 2;
constexpr int kAll = StoreChoice::kPeriod;

TEST(StoreChoice, BeginsWithTheCaches) {
  StoreChoice choice;
  EXPECT_EQ(streamed_of(choice, StoreChoice::kUntilFirstTrial, kFar), 0);
  EXPECT_EQ(streamed_of(choice, StoreChoice::kTrial, kFar), kHalf);
}

TEST(StoreChoice, StaysWithTheCachesWhereTheyAreNoBurden) {
  for (const Cores cores : {kNear, Cores{90, 90}, Cores{180, 90}, Cores{0, 0}}) {
    StoreChoice choice = choice_among(cores);
    EXPECT_EQ(streamed_of(choice, 10 * kAll, cores), 10 * kHalf);
  }
}

TEST(StoreChoice, GoesPastThemWhereTheyAreAndLooksAgainNowAndThen) {
  StoreChoice choice = choice_among(kFar);
  EXPECT_EQ(streamed_of(choice, 10 * kAll, kFar), 10 * (kAll - kHalf));
}

TEST(StoreChoice, SeesAtOnceThatCoresHaveParted) {
  StoreChoice choice = choice_among(kNear);
  streamed_of(choice, 100, kNear);
  EXPECT_EQ(streamed_of(choice, 2, kFar), 0);
  EXPECT_EQ(streamed_of(choice, StoreChoice::kTrial, kFar), kHalf) << "a trial";
  EXPECT_EQ(streamed_of(choice, 100, kFar), 100);
}

TEST(StoreChoice, SeesInTheNextTrialThatTheyAreTogether) {
  StoreChoice choice = choice_among(kFar);
  streamed_of(choice, kAll, kNear);
  EXPECT_EQ(streamed_of(choice, 100, kNear), 0);
}

// Input that is nowhere in a cache, or a thread that was interrupted.
constexpr Cores kSlow{2000, 2000};

TEST(StoreChoice, SlowFillsForOtherReasonsChangeNothing) {
  StoreChoice near = choice_among(kNear);
  StoreChoice far = choice_among(kFar);
  for (int i = 0; i < 20; ++i) {
    streamed_of(near, 1 + i % 3, kSlow);
    streamed_of(near, StoreChoice::kTrial, kNear);
    EXPECT_EQ(streamed_of(near, 20, kNear), 0) << i;
    streamed_of(far, 1 + i % 3, kSlow);
    EXPECT_EQ(streamed_of(far, 20, kFar), 20) << i;
  }
}

TEST(StoreChoice, OneInterruptionDoesNotDecideATrial) {
  for (int interrupted = 0; interrupted < StoreChoice::kTrial; ++interrupted) {
    for (const Cores cores : {kNear, kFar}) {
      StoreChoice choice;
      streamed_of(choice, StoreChoice::kUntilFirstTrial + interrupted, cores);
      streamed_of(choice, 1, kSlow);
      streamed_of(choice, StoreChoice::kTrial - interrupted - 1, cores);
      EXPECT_EQ(streamed_of(choice, 20, cores), cores.cached == kFar.cached ? 20 : 0);
    }
  }
}

TEST(StoreChoice, ALongFillIsNotASlowOne) {
  StoreChoice choice = choice_among(kNear);
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(choice.next(), Stores::cached);
    choice.took(Stores::cached, 100 * kBytes, std::chrono::nanoseconds(100 * kBytes * 60 / 1000));
  }
}

// The clock cannot have decided anything yet.
TEST(ChunkWriter, WritesAllBytesWithBothKindsOfStores) {
  ChunkWriter writer;
  std::vector<int> source(64 << 10);
  std::iota(source.begin(), source.end(), 1);
  const std::size_t bytes = source.size() * sizeof(int);
  for (int i = 0; i < StoreChoice::kUntilFirstTrial + StoreChoice::kTrial; ++i) {
    const bool streams = i > StoreChoice::kUntilFirstTrial && i % 2 == 1;
    std::vector<int> chunk(source.size());
    writer.write(bytes, [&](CopyFunction copy) {
      ASSERT_EQ(copy, streams ? stream_copy : bulk_copy) << i;
      copy(chunk.data(), source.data(), bytes);
    });
    ASSERT_EQ(chunk, source) << i;
  }
}

TEST(ChunkWriter, ShortChunksStayInTheCaches) {
  ChunkWriter writer;
  for (int round = 0; round < 2 * StoreChoice::kPeriod; ++round) {
    writer.write(4096, [&](CopyFunction copy) { ASSERT_EQ(copy, bulk_copy); });
  }
}

}  // namespace
}  // namespace hvd::test
