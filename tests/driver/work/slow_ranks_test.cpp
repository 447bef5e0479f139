#include "driver/work/slow_ranks.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>

#include "driver/work/work_watch.h"

namespace hvd::driver {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

// A program whose ranks meet at the end of each step. The incarnation of rank r is r + 1.
class SteppingWorld {
 public:
  explicit SteppingWorld(std::size_t ranks) : readings_(ranks) {}

  // Each rank works for so many seconds, and waits for the slowest one.
  void step(const std::vector<double>& work) {
    const double longest = *std::max_element(work.begin(), work.end());
    for (std::size_t rank = 0; rank < readings_.size(); ++rank) {
      readings_[rank].time_ns += static_cast<std::uint64_t>(longest * kSecond);
      readings_[rank].waited_ns += static_cast<std::uint64_t>((longest - work[rank]) * kSecond);
      ++readings_[rank].steps;
    }
  }
  std::vector<SlowRanks::Change> look() {
    std::vector<SlowRanks::Rank> world;
    for (std::size_t rank = 0; rank < readings_.size(); ++rank) {
      world.push_back({rank + 1, &readings_[rank]});
    }
    return slow_.look(world);
  }
  // Incarnations that became slow within these steps.
  std::vector<std::uint64_t> named(int steps, const std::vector<double>& work) {
    std::vector<std::uint64_t> named;
    for (int i = 0; i < steps; ++i) {
      step(work);
      for (const auto& change : look()) {
        if (change.slow) named.push_back(change.incarnation);
      }
    }
    return named;
  }
  SlowRanks& slow() { return slow_; }

 private:
  std::vector<WorkReading> readings_;
  SlowRanks slow_;
};

using Incarnations = std::vector<std::uint64_t>;

TEST(SlowRanks, ARankAtAThirdOfTheSpeedIsNamedOnceWithinTwentySteps) {
  for (const double seconds : {0.1, 0.6, 5.0, 40.0}) {
    SteppingWorld world(4);
    // Steps that are shorter than a round take more of them.
    const int steps = std::max(20, static_cast<int>(12 / (3 * seconds)));
    EXPECT_EQ(world.named(steps, {seconds, seconds, 3 * seconds, seconds}), Incarnations{3})
        << seconds;
    EXPECT_TRUE(world.slow().is_slow(3));
    EXPECT_NEAR(world.slow().lateness(3), 2.0 / 3, 0.01);
    EXPECT_EQ(world.slow().lateness(1), 0);
    EXPECT_EQ(world.named(100, {seconds, seconds, 3 * seconds, seconds}), Incarnations{})
        << "again";
  }
}

TEST(SlowRanks, OfTwoRanksTheSlowOneIsNamed) {
  SteppingWorld world(2);
  EXPECT_EQ(world.named(20, {0.5, 1.5}), Incarnations{2});
}

TEST(SlowRanks, AllRanksOfASlowHostAreNamed) {
  SteppingWorld world(8);
  EXPECT_EQ(world.named(20, {1, 1, 1, 1, 3, 3, 3, 3}), (Incarnations{5, 6, 7, 8}));
}

TEST(SlowRanks, RanksThatTakeTurnsAreNotSlow) {
  SteppingWorld world(4);
  std::mt19937 random(7);
  for (int i = 0; i < 5000; ++i) {
    std::vector<double> work(4, 0.4);
    work[random() % 4] = 1.2;
    world.step(work);
    EXPECT_TRUE(world.look().empty()) << i;
  }
}

TEST(SlowRanks, APauseOfOneRankIsNotSlowness) {
  for (const double step : {0.05, 0.5, 10.0}) {
    SteppingWorld world(3);
    // A checkpoint of rank 0, after every fifty steps.
    for (int i = 0; i < 1000; ++i) {
      world.step({i % 50 == 0 ? 20 * step : step, step, step});
      EXPECT_TRUE(world.look().empty()) << step << " " << i;
    }
  }
}

TEST(SlowRanks, ALittleSlowerIsNotSlow) {
  SteppingWorld world(4);
  EXPECT_EQ(world.named(500, {1, 1, 1.2, 1}), Incarnations{});
}

TEST(SlowRanks, ARankThatIsFastAgainIsNamedOnceMore) {
  SteppingWorld world(3);
  EXPECT_EQ(world.named(20, {1, 3, 1}), Incarnations{2});
  std::vector<SlowRanks::Change> changes;
  for (int i = 0; i < 40; ++i) {
    world.step({1, 1, 1});
    for (const auto& change : world.look()) changes.push_back(change);
  }
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes[0].incarnation, 2U);
  EXPECT_FALSE(changes[0].slow);
  EXPECT_FALSE(world.slow().is_slow(2));
}

TEST(SlowRanks, InANewWorldASlowRankIsNotNamedAgain) {
  std::vector<WorkReading> readings(3);
  SlowRanks slow;
  int named = 0;
  // The third rank is lost after 30 steps.
  for (int step = 0; step < 60; ++step) {
    for (std::size_t rank = 0; rank < 3; ++rank) {
      readings[rank].time_ns += 3 * kSecond;
      readings[rank].waited_ns += rank == 0 ? 0 : 2 * kSecond;
      ++readings[rank].steps;
    }
    std::vector<SlowRanks::Rank> world{{1, &readings[0]}, {2, &readings[1]}};
    if (step < 30) world.push_back({3, &readings[2]});
    for (const auto& change : slow.look(world)) {
      EXPECT_TRUE(change.slow);
      EXPECT_EQ(change.incarnation, 1U);
      ++named;
    }
  }
  EXPECT_EQ(named, 1);
}

TEST(SlowRanks, ARankThatIsAloneIsSlowNoLonger) {
  SteppingWorld world(3);
  EXPECT_EQ(world.named(20, {1, 3, 1}), Incarnations{2});
  const WorkReading reading;
  EXPECT_TRUE(world.slow().look({{2, &reading}}).empty());
  EXPECT_FALSE(world.slow().is_slow(2));
  EXPECT_EQ(world.slow().lateness(2), 0);
}

TEST(SlowRanks, NobodyIsNamedWhileSomeRankHasNotReported) {
  SlowRanks slow;
  WorkReading reading;
  for (int i = 0; i < 50; ++i) {
    reading.time_ns += kSecond;
    reading.steps += 10;
    EXPECT_TRUE(slow.look({{1, &reading}, {2, nullptr}}).empty());
    EXPECT_TRUE(slow.look({{1, &reading}}).empty());
  }
  EXPECT_TRUE(slow.look({}).empty());
}

TEST(SlowRanks, ANoteNamesRanksOfOneHost) {
  EXPECT_EQ(slow_text({{"b#1", "b", 3, 0.613}}),
            "rank 3 on b#1 is slow: the other ranks wait for it for 61 % of the time");
  EXPECT_EQ(slow_text({{"b#0", "b", 2, 0.5}, {"b#1", "b", 3, 0.6}}),
            "ranks 2-3 on host b are slow: the other ranks wait for them for 60 % of the time");
}

}  // namespace
}  // namespace hvd::driver
