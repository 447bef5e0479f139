// The sampler, against libhvd.so: what all ranks of changing worlds were handed out, together.
#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include <hvd/hvd.h>
#include <hvd/sampler.h>

namespace {

using hvd::Sampler;
using Samples = std::vector<std::int64_t>;

// One step of all ranks of a world; they must get as many.
Samples step(Sampler& sampler, std::int64_t batch, int size) {
  const std::string before = sampler.save();
  Samples all;
  std::set<std::size_t> counts;
  for (int rank = 0; rank < size; ++rank) {
    sampler.load(before);
    const auto own = sampler.next(batch, rank, size);
    counts.insert(own.size());
    all.insert(all.end(), own.begin(), own.end());
  }
  EXPECT_EQ(counts.size(), 1U);
  return all;
}

Samples whole_epoch(Sampler& sampler, std::int64_t batch, int size) {
  Samples all;
  while (!sampler.done()) {
    const auto more = step(sampler, batch, size);
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

TEST(Sampler, HandsOutEachSampleOfAnEpochOnceAndPadsLessThanAWorld) {
  for (const std::int64_t samples : {1, 2, 3, 4, 5, 16, 17, 63, 64, 65, 1000, 4097}) {
    for (const int size : {1, 2, 3, 7, 8}) {
      Sampler sampler({.size = samples, .seed = 3});
      const auto all = whole_epoch(sampler, 5, size);
      const std::set<std::int64_t> different(all.begin(), all.end());
      EXPECT_EQ(different.size(), static_cast<std::size_t>(samples)) << size;
      EXPECT_EQ(*different.begin(), 0);
      EXPECT_EQ(*different.rbegin(), samples - 1);
      EXPECT_LT(all.size(), static_cast<std::size_t>(samples + size)) << samples;
    }
  }
}

TEST(Sampler, EverySampleIsCommittedOnceWhateverTheWorldDoes) {
  std::mt19937 random(11);  // NOLINT(cert-msc51-cpp): repeatable
  for (int round = 0; round < 200; ++round) {
    const std::int64_t samples = 1 + static_cast<std::int64_t>(random() % 3000);
    Sampler sampler({.size = samples, .seed = random()});
    sampler.set_epoch(round);
    std::map<std::int64_t, int> committed;
    Samples uncommitted;
    std::string commit = sampler.save();
    int size = 1 + static_cast<int>(random() % 8);
    std::size_t padding = 0;
    const auto take_up = [&] {
      for (const auto sample : uncommitted) ++committed[sample];
      uncommitted.clear();
      commit = sampler.save();
    };
    while (!sampler.done()) {
      const auto left = sampler.remaining();
      const auto all = step(sampler, 1 + static_cast<std::int64_t>(random() % 20), size);
      padding += all.size() - static_cast<std::size_t>(std::min<std::int64_t>(
                                  left, static_cast<std::int64_t>(all.size())));
      uncommitted.insert(uncommitted.end(), all.begin(), all.end());
      switch (random() % 4) {
        case 0:  // a rank dies: back to the commit, in another world
          uncommitted.clear();
          padding = 0;
          sampler.load(commit);
          size = 1 + static_cast<int>(random() % 8);
          break;
        case 1:
          take_up();
          break;
        default:
          break;
      }
    }
    take_up();
    std::size_t handed_out = 0;
    for (const auto& [sample, times] : committed) handed_out += static_cast<std::size_t>(times);
    EXPECT_EQ(committed.size(), static_cast<std::size_t>(samples));
    EXPECT_EQ(handed_out, static_cast<std::size_t>(samples) + padding);
  }
}

TEST(Sampler, TheOrderDependsOnSeedAndEpochAndOnNothingElse) {
  const auto order = [](std::uint64_t seed, std::int64_t epoch) {
    Sampler sampler({.size = 100, .seed = seed});
    sampler.set_epoch(epoch);
    return sampler.next(100, 0, 1);
  };
  EXPECT_EQ(order(1, 0), order(1, 0));
  EXPECT_NE(order(1, 0), order(2, 0));
  EXPECT_NE(order(1, 0), order(1, 1));
  EXPECT_NE(order(1, 2), order(2, 1));
  Samples sorted(100);
  std::iota(sorted.begin(), sorted.end(), 0);
  EXPECT_NE(order(1, 0), sorted);
  // The samples that a release handed out must stay the same: committed positions refer to them.
  EXPECT_EQ(Sampler({.size = 10, .seed = 1}).next(10, 0, 1),
            (Samples{3, 6, 9, 8, 5, 1, 7, 4, 0, 2}));
}

TEST(Sampler, ShufflesEvenly) {
  constexpr int kSamples = 20;
  constexpr int kEpochs = 20'000;
  std::vector<std::vector<int>> at(kSamples, std::vector<int>(kSamples));
  Sampler sampler({.size = kSamples, .seed = 5});
  for (int epoch = 1; epoch <= kEpochs; ++epoch) {
    sampler.set_epoch(epoch);
    const auto order = sampler.next(kSamples, 0, 1);
    for (std::size_t i = 0; i < order.size(); ++i) ++at[i][static_cast<std::size_t>(order[i])];
  }
  // Each sample stands in each place in 1,000 epochs, give or take six standard deviations.
  for (const auto& place : at) {
    EXPECT_GT(*std::min_element(place.begin(), place.end()), 800);
    EXPECT_LT(*std::max_element(place.begin(), place.end()), 1200);
  }
}

TEST(Sampler, InOrderWithoutShuffling) {
  Sampler sampler({.size = 5, .shuffle = false});
  EXPECT_EQ(sampler.next(2, 0, 2), (Samples{0, 1}));
  EXPECT_EQ(sampler.processed(), 4);
  EXPECT_EQ(sampler.next(2, 1, 2), (Samples{0}));  // padding; rank 0 gets sample 4
  EXPECT_TRUE(sampler.done());
  EXPECT_TRUE(sampler.next(2, 0, 2).empty());
  sampler.set_epoch(1);
  EXPECT_EQ(sampler.remaining(), 5);
}

TEST(Sampler, HasNoNegativeEpochs) {
  Sampler sampler({.size = 5});
  sampler.set_epoch(3);
  EXPECT_THROW(sampler.set_epoch(-1), hvd::InvalidArgumentError);
  EXPECT_EQ(sampler.epoch(), 3);
}

TEST(Sampler, TakesRankAndSizeFromTheWorld) {
  Sampler sampler({.size = 4, .shuffle = false});
  EXPECT_THROW(sampler.next(1), hvd::NotInitializedError);
  hvd::init();
  EXPECT_EQ(sampler.next(3), (Samples{0, 1, 2}));
  hvd::shutdown();
}

TEST(Sampler, OfAHugeDataSetTakesNoMemory) {
  Sampler sampler({.size = std::int64_t{1} << 60});
  const auto samples = sampler.next(1000, 7, 8);
  const std::set<std::int64_t> different(samples.begin(), samples.end());
  EXPECT_EQ(different.size(), 1000U);
  EXPECT_GE(*different.begin(), 0);
  EXPECT_LT(*different.rbegin(), std::int64_t{1} << 60);
}

TEST(Sampler, RefusesInvalidArguments) {
  EXPECT_THROW(Sampler({.size = -1}), hvd::InvalidArgumentError);
  Sampler sampler({.size = 4});
  EXPECT_THROW(sampler.next(0, 0, 1), hvd::InvalidArgumentError);
  EXPECT_THROW(sampler.next(1, 1, 1), hvd::InvalidArgumentError);
  EXPECT_THROW(sampler.load("rubbish"), hvd::InvalidArgumentError);
  EXPECT_THROW(sampler.load(Sampler({.size = 5}).save()), hvd::InvalidArgumentError);
  EXPECT_THROW(sampler.load(Sampler({.size = 4, .seed = 1}).save()), hvd::InvalidArgumentError);
  EXPECT_THROW(sampler.load(Sampler({.size = 4}).save() + "x"), hvd::InvalidArgumentError);
  EXPECT_TRUE(Sampler({.size = 0}).next(1, 0, 1).empty());
}

}  // namespace
