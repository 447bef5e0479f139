// Worlds with several ranks on a host: that they share memory or do without it, and how they
// end.
#include <algorithm>
#include <barrier>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <random>
#include <span>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/shm/shared_heap.h"
#include "tests/runtime/control/worlds.h"
#include "tests/runtime/shm/shm_ranks.h"
#include "tests/support/process.h"

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

// The rounding of these numbers tells the order in which they were added up: on two hosts of two.
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

TEST(ShmWorld, RanksOfHostsThatShareMemoryGoByHostsUnlessConfiguredOtherwise) {
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

TEST(ShmWorld, ProcessesReadEachOthersHeapsUntilTheWorldEnds) {
  static constexpr std::int64_t kElements = 100'000;
  on_ranks(RanksAs::processes, 3, [](int rank, runtime::Exchange& exchange) {
    auto& heap = runtime::SharedHeap::of_process();
    heap.free(*heap.allocate(1));
    const std::size_t before = heaps_mapped();
    for (int generation = 0; generation < 3; ++generation) {
      auto spec = spec_of(rank, 3);
      on_one_host(spec);
      auto world = World::create(spec, exchange);
      ASSERT_TRUE(world.ok()) << world.status().to_string();
      EXPECT_EQ(heaps_mapped(), before);
      // After the heaps were handed on.
      const auto memory = heap.allocate(kElements * sizeof(float));
      ASSERT_TRUE(memory.ok()) << memory.status().to_string();
      const std::span data(reinterpret_cast<float*>(*memory), kElements);
      std::fill(data.begin(), data.end(), static_cast<float>(rank));
      const auto outcome = outcome_of(
          submit(**world, allreduce_request("sum", kElements), data.data(), data.data()));
      EXPECT_TRUE(outcome.ok()) << outcome.status.to_string();
      EXPECT_EQ(std::count(data.begin(), data.end(), 3.F), kElements);
      EXPECT_EQ(heaps_mapped(), before + 2);
      heap.free(*memory);
      const auto left = (*world)->shutdown(Clock::now() + kLong);
      EXPECT_TRUE(left.ok()) << left.status.to_string();
      world->reset();
      EXPECT_EQ(heaps_mapped(), before);
    }
  });
}

TEST(ShmWorld, WhereOneRankDoesNotWantItNoRankHasIt) {
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

TEST(ShmWorld, ARankThatLeavesIsNamedToAllRanksThatWaitForItInSharedMemory) {
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

// Waits as Handle::wait() does if it `drives`, or leaves the progress to the threads of the world.
Failure sum_of(World& world, const std::string& name, std::vector<float>& data, bool drives) {
  auto future = allreduce(world, name, data);
  if (drives) {
    progress_until_ready(world, future);
  }
  return outcome_of(std::move(future));
}

// Ranks two levels deep under rank 0, some of which never drive the progress; negotiations of a few
// bytes, and of far more than a message holds, with the timeline on.
TEST(ShmWorld, ShortMessagesAndLongFramesNegotiateSideBySide) {
  constexpr int kRanks = 6;
  const TemporaryDirectory directory;
  run_world_to_end(
      kRanks,
      [&directory](int rank, World& world) {
        if (rank == 0) {
          const auto started =
              world.start_timeline((directory.path() / "timeline.json").string(), true);
          EXPECT_TRUE(started.ok()) << started.to_string();
        }
        constexpr float kSum = kRanks * (kRanks - 1) / 2.0F;
        std::thread many([&] {
          for (int round = 0; round < 5; ++round) {
            std::vector<std::vector<float>> tensors(200, std::vector<float>(3, rank));
            std::vector<std::future<Failure>> outcomes;
            for (std::size_t i = 0; i < tensors.size(); ++i) {
              const auto name = cat("a gradient of round ", round, " with a long name, ", i);
              outcomes.push_back(allreduce(world, name, tensors[i]));
            }
            for (auto& outcome : outcomes) ASSERT_TRUE(outcome_of(std::move(outcome)).ok());
            for (const auto& tensor : tensors) ASSERT_EQ(tensor, std::vector<float>(3, kSum));
          }
        });
        for (int i = 0; i < 300; ++i) {
          std::vector<float> data(16, static_cast<float>(rank));
          const auto outcome = sum_of(world, cat("few ", i % 5), data, rank % 3 != 1);
          EXPECT_TRUE(outcome.ok()) << outcome.status.to_string();
          EXPECT_EQ(data, std::vector<float>(16, kSum)) << "round " << i;
        }
        many.join();
        if (rank == 0) {
          EXPECT_TRUE(world.stop_timeline(Clock::now() + kLong).ok());
        }
      },
      on_one_host);
}

// Rank 0 leaves with the last response, which its own threads have made; a moment ago rank 1 was
// still driving the progress.
TEST(ShmWorld, TheLastResponseReachesARankThatHasJustStoppedDriving) {
  std::barrier both(2);
  run_world_to_end(
      2,
      [&both](int rank, World& world) {
        for (int i = 0; i < 200; ++i) {
          std::vector<float> data(16, 1);
          EXPECT_TRUE(sum_of(world, "before", data, true).ok());
          // Of two shapes, so that no rank waits for the other in a transfer.
          data.resize(rank == 0 ? 16 : 8);
          const auto outcome = sum_of(world, "differs", data, rank == 0);
          EXPECT_TRUE(mentions(outcome, "Mismatched")) << outcome.status.to_string();
          both.arrive_and_wait();
        }
      },
      [](WorldSpec& spec) {
        on_one_host(spec);
        spec.config.cycle_time = std::chrono::microseconds(1);
      });
}

// Each rank leaves once, right after it has requested the tensor that the others wait for.
TEST(ShmWorld, ARankThatLeavesWhileMessagesAreOnTheirWayIsNamedToAll) {
  for (int goes = 0; goes < 6; ++goes) {
    std::barrier all(6);
    std::vector<std::vector<float>> tensors(6, std::vector<float>(16));
    run_world(
        6,
        [&](int rank, World& world) {
          auto& data = tensors[static_cast<std::size_t>(rank)];
          for (int i = 0; i < 20; ++i) EXPECT_TRUE(sum_of(world, "before", data, true).ok());
          all.arrive_and_wait();
          if (rank == goes) {
            allreduce(world, "last", data);
            world.abandon();
            return;
          }
          Failure outcome;
          while (outcome.ok()) outcome = sum_of(world, "last", data, rank % 2 == 0);
          EXPECT_EQ(outcome.rank, goes) << outcome.status.message();
        },
        on_one_host);
  }
}

// The only one that there is in this process.
Result<runtime::ShmLayout> memory_of_a_world(int ranks, std::size_t chunk_bytes) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto name = std::filesystem::read_symlink(entry.path(), gone).string();
    if (name.find("memfd:hvd ") == std::string::npos) continue;
    const int fd = std::stoi(entry.path().filename().string());
    return runtime::ShmLayout::adopt(UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0)), ranks, chunk_bytes);
  }
  return Status(Code::not_found, "no world has memory");
}

TEST(ShmWorld, AMalformedMessageInSharedMemoryEndsTheWorld) {
  std::barrier all(3);
  run_world(
      3,
      [&](int rank, World& world) {
        expect_sum(world, 100);
        all.arrive_and_wait();
        if (rank == 2) {
          const auto memory = memory_of_a_world(3, runtime::Config().chunk_bytes);
          ASSERT_TRUE(memory.ok()) << memory.status().to_string();
          auto& slot = memory->slot(1);
          EXPECT_TRUE(slot.to_parent.put(0, "gar"));
          ++memory->slot(0).arrived;
        }
        all.arrive_and_wait();
        std::vector<float> data(16);
        const auto outcome = sum_of(world, "second", data, true);
        EXPECT_EQ(outcome.rank, 1);
        EXPECT_TRUE(mentions(
            outcome,
            "does not keep to the protocol: a message in shared memory is not a whole frame"))
            << outcome.status.message();
      },
      on_one_host);
}

}  // namespace
}  // namespace hvd::test
