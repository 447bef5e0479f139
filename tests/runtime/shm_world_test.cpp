// Worlds whose ranks share hosts: that they use the memory, that they can do without, and how they
// end.
#include <barrier>
#include <csignal>
#include <random>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/runtime/shm_ranks.h"
#include "tests/runtime/worlds.h"

namespace hvd::test {
namespace {

using runtime::Failure;
using runtime::World;
using runtime::WorldSpec;

void on_one_host(WorldSpec& spec) {
  for (auto& member : spec.members) member.host = "h0";
}

void expect_sum(World& world, std::size_t elements) {
  std::vector<float> data(elements, static_cast<float>(world.rank()));
  const auto outcome = outcome_of(allreduce(world, "sum", data));
  ASSERT_TRUE(outcome.ok()) << outcome.status.to_string();
  const auto wanted = static_cast<float>(world.size() * (world.size() - 1)) / 2;
  EXPECT_EQ(data, std::vector<float>(elements, wanted));
}

TEST(ShmWorld, RanksOfOneHostShareOneSegmentUntilTheWorldEnds) {
  std::barrier all(4);
  run_world_to_end(
      4,
      [&](int /*rank*/, World& world) {
        expect_sum(world, 100'000);
        all.arrive_and_wait();
        EXPECT_EQ(segments_mapped(), 1U);
        all.arrive_and_wait();
      },
      on_one_host);
  EXPECT_EQ(segments_mapped(), 0U);
}

TEST(ShmWorld, TwoHostsHaveASegmentEachAndReduceOverTheirConnections) {
  std::barrier all(4);
  run_world_to_end(4, [&](int /*rank*/, World& world) {
    expect_sum(world, 100'000);
    all.arrive_and_wait();
    EXPECT_EQ(segments_mapped(), 2U);
    all.arrive_and_wait();
  });
}

// Of numbers whose rounding tells the order in which they were added up: on two hosts of two.
std::vector<float> sum_of_various(const Change& change) {
  constexpr std::size_t kElements = 100'000;
  std::vector<std::vector<float>> results(4);
  run_world_to_end(
      4,
      [&](int rank, World& world) {
        auto& data = results[static_cast<std::size_t>(rank)];
        std::mt19937 random(static_cast<unsigned>(rank));
        std::uniform_real_distribution<float> any(-1, 1);
        for (std::size_t i = 0; i < kElements; ++i) data.push_back(any(random));
        const auto outcome = outcome_of(allreduce(world, "various", data));
        EXPECT_TRUE(outcome.ok()) << outcome.status.to_string();
      },
      change);
  for (const auto& result : results) EXPECT_EQ(result, results.front());
  return results.front();
}

TEST(ShmWorld, RanksOfHostsThatShareMemoryGoByHostsUnlessSomebodySaysOtherwise) {
  const auto as_it_comes = sum_of_various([](WorldSpec&) {});
  const auto by_hosts =
      sum_of_various([](WorldSpec& spec) { spec.config.hierarchical_allreduce = true; });
  const auto flat =
      sum_of_various([](WorldSpec& spec) { spec.config.hierarchical_allreduce = false; });
  const auto without = sum_of_various([](WorldSpec& spec) { spec.config.shared_memory = false; });
  EXPECT_EQ(as_it_comes, by_hosts);
  EXPECT_NE(by_hosts, flat);
  EXPECT_EQ(without, flat);
}

TEST(ShmWorld, WhereOneRankDoesNotWantItNobodyHasIt) {
  std::barrier all(3);
  run_world_to_end(
      3,
      [&](int /*rank*/, World& world) {
        expect_sum(world, 100'000);
        EXPECT_EQ(segments_mapped(), 0U);
        all.arrive_and_wait();
      },
      [](WorldSpec& spec) {
        on_one_host(spec);
        spec.config.shared_memory = spec.rank != 1;
      });
}

TEST(ShmWorld, AnAbortWakesCollectivesInSharedMemoryOnEveryRank) {
  for (int round = 0; round < 8; ++round) {
    std::atomic<int> running = 0;
    run_world(
        4,
        [&](int rank, World& world) {
          std::vector<float> data(1 << 18, 1);
          std::thread aborter;
          if (rank == round % 4) {
            aborter = std::thread([&] {
              while (running < 20 + round) std::this_thread::yield();
              world.abort({Status(Code::aborted, "enough"), -1, {}});
            });
          }
          Failure outcome;
          while (outcome.ok()) {
            ++running;
            outcome = outcome_of(allreduce(world, "x", data));
          }
          EXPECT_TRUE(mentions(outcome, "enough")) << outcome.status.message();
          if (aborter.joinable()) aborter.join();
        },
        on_one_host);
  }
  EXPECT_EQ(segments_mapped(), 0U);
}

TEST(ShmWorld, AMemberThatGoesIsNamedToAllWhoWaitForItInSharedMemory) {
  std::barrier all(4);
  run_world(
      4,
      [&](int rank, World& world) {
        expect_sum(world, 1000);
        all.arrive_and_wait();
        if (rank == 2) return;
        std::vector<float> data(100'000, 1);
        const auto outcome = outcome_of(allreduce(world, "second", data));
        EXPECT_EQ(outcome.rank, 2) << outcome.status.message();
      },
      on_one_host);
}

}  // namespace
}  // namespace hvd::test
