// Small allreduces of the ranks of one host that are repeated, and all that makes them leave their
// lanes.
#include <barrier>
#include <filesystem>
#include <random>

#include "tests/runtime/control/worlds.h"
#include "tests/runtime/negotiation/negotiation_tools.h"
#include "tests/support/process.h"

namespace hvd::test {
namespace {

using runtime::Entry;
using runtime::Failure;
using runtime::Kind;
using runtime::World;
using runtime::WorldSpec;

constexpr int kRanks = 3;

void on_one_host(WorldSpec& spec) {
  for (auto& member : spec.members) member.host = "h0";
}

float sum_of_ranks(int size) { return static_cast<float>(size * (size - 1)) / 2; }

// A call as programs make it: the thread waits for its result.
Failure reduce(World& world, const std::string& name, std::vector<float>& data) {
  auto future = allreduce(world, name, data);
  progress_until_ready(world, future);
  return outcome_of(std::move(future));
}

void expect_sum(World& world, const std::string& name, std::size_t elements = 5) {
  std::vector<float> data(elements, static_cast<float>(world.rank()));
  const auto outcome = reduce(world, name, data);
  ASSERT_TRUE(outcome.ok()) << outcome.status.to_string();
  ASSERT_EQ(data, std::vector<float>(elements, sum_of_ranks(world.size())));
}

// From now on the name has a lane.
void enter_lane(World& world, const std::string& name, std::size_t elements = 5) {
  const auto before = world.cache_stats().in_lanes;
  for (int call = 0; call < 3; ++call) expect_sum(world, name, elements);
  EXPECT_EQ(world.cache_stats().in_lanes, before + 1) << "the third call";
}

Failure join(World& world) {
  Entry entry;
  entry.request.kind = Kind::join;
  return outcome_of(submit(world, std::move(entry))).failure;
}

// Of two ranks, rank 0 has called when rank 1 calls.
std::future<Failure> call_after_each_other(int rank, World& world, std::vector<float>& data,
                                           std::barrier<>& both) {
  std::future<Failure> own;
  if (rank == 0) own = allreduce(world, "x", data);
  both.arrive_and_wait();
  if (rank == 1) own = allreduce(world, "x", data);
  return own;
}

TEST(WorldLanes, AreUsedFromTheThirdCallOn) {
  run_world_to_end(
      kRanks,
      [](int /*rank*/, World& world) {
        for (int call = 0; call < 20; ++call) {
          expect_sum(world, "scalar", 1);
          expect_sum(world, "8 KB", 2048);
          expect_sum(world, "more", 2049);
        }
        EXPECT_EQ(world.cache_stats().in_lanes, 36U);
        EXPECT_EQ(world.cache_stats().misses, 3U);
      },
      on_one_host);
}

TEST(WorldLanes, AreForOneHostAlone) {
  run_world_to_end(4, [](int /*rank*/, World& world) {
    for (int call = 0; call < 5; ++call) expect_sum(world, "x");
    EXPECT_EQ(world.cache_stats().in_lanes, 0U);
  });
}

TEST(WorldLanes, CallsComeInAnyOrderAndNeedNobodyWhoWaits) {
  run_world_to_end(
      kRanks,
      [](int rank, World& world) {
        std::mt19937 random(static_cast<unsigned>(rank));
        std::vector<int> order(200);
        for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
        for (int step = 0; step < 10; ++step) {
          std::shuffle(order.begin(), order.end(), random);
          std::vector<std::vector<float>> data(order.size());
          std::vector<std::future<Failure>> futures(order.size());
          for (const int i : order) {
            const auto at = static_cast<std::size_t>(i);
            data[at].assign(at + 1, static_cast<float>(rank + i));
            futures[at] = allreduce(world, cat("t", i), data[at]);
          }
          for (std::size_t i = 0; i < order.size(); ++i) {
            ASSERT_TRUE(outcome_of(std::move(futures[i])).ok());
            const float wanted = sum_of_ranks(kRanks) + static_cast<float>(kRanks * i);
            ASSERT_EQ(data[i], std::vector<float>(i + 1, wanted));
          }
        }
        EXPECT_EQ(world.cache_stats().in_lanes, 8 * order.size());
      },
      on_one_host);
}

TEST(WorldLanes, AnotherShapeOfOneRankIsTheErrorOfAllThatItAlwaysIs) {
  run_world_to_end(
      kRanks,
      [](int rank, World& world) {
        enter_lane(world, "x");
        std::vector<float> data(rank == 1 ? 6 : 5, 1);
        const auto outcome = reduce(world, "x", data);
        EXPECT_TRUE(mentions(outcome, "rank 1 on h0#1") || mentions(outcome, "[6]"))
            << outcome.status.to_string();
        EXPECT_FALSE(outcome.ok());
        expect_sum(world, "x");
        expect_sum(world, "x");
      },
      on_one_host);
}

TEST(WorldLanes, ARankThatJoinsMakesTheOthersGoOnWithoutIt) {
  run_world_to_end(
      kRanks,
      [](int rank, World& world) {
        for (int round = 0; round < 3; ++round) {
          for (int call = 0; call < 4; ++call) expect_sum(world, "x");
          if (rank > 0) {
            std::vector<float> data(5, 1);
            const auto outcome = reduce(world, "x", data);
            EXPECT_TRUE(outcome.ok()) << outcome.status.to_string();
            EXPECT_EQ(data, std::vector<float>(5, 2));
          }
          const auto joined = join(world);
          EXPECT_TRUE(joined.ok()) << joined.status.to_string();
        }
      },
      on_one_host);
}

// A call that waits in its lane comes before the join.
TEST(WorldLanes, ARankThatJoinsTakesPartInWhatItHasCalledBefore) {
  std::barrier both(2);
  run_world_to_end(
      2,
      [&](int rank, World& world) {
        enter_lane(world, "x");
        std::vector<float> data(5, 1);
        auto own = call_after_each_other(rank, world, data, both);
        EXPECT_TRUE(join(world).ok());
        EXPECT_TRUE(outcome_of(std::move(own)).ok());
        EXPECT_EQ(data, std::vector<float>(5, 2));
      },
      on_one_host);
}

TEST(WorldLanes, ARankInShutdownFailsTheCallsOfTheOthers) {
  run_world(
      kRanks,
      [](int rank, World& world) {
        enter_lane(world, "x");
        if (rank != 2) {
          std::vector<float> data(5, 1);
          const auto outcome = reduce(world, "x", data);
          EXPECT_TRUE(mentions(outcome, "rank 2 on h0#0 has already called shutdown()") ||
                      mentions(outcome, "has already called shutdown()"))
              << outcome.status.to_string();
          EXPECT_FALSE(outcome.world_failed);
        }
        const auto left = world.shutdown(Clock::now() + kLong);
        EXPECT_TRUE(left.ok()) << left.status.to_string();
      },
      on_one_host);
}

TEST(WorldLanes, ACallInItsLaneEndsWellInShutdown) {
  std::barrier both(2);
  run_world(
      2,
      [&](int rank, World& world) {
        enter_lane(world, "x");
        std::vector<float> data(5, 1);
        auto own = call_after_each_other(rank, world, data, both);
        const auto left = world.shutdown(Clock::now() + kLong);
        EXPECT_TRUE(left.ok()) << left.status.to_string();
        EXPECT_TRUE(outcome_of(std::move(own)).ok());
        EXPECT_EQ(data, std::vector<float>(5, 2));
      },
      on_one_host);
}

TEST(WorldLanes, AbortWakesThoseThatWait) {
  for (const bool drives : {true, false}) {
    std::barrier all(kRanks);
    run_world(
        kRanks,
        [&](int rank, World& world) {
          enter_lane(world, "x");
          all.arrive_and_wait();
          std::vector<float> data(5, 1);
          if (rank == 1) {
            world.abort(Status(Code::aborted, "the test has had enough"));
            return;
          }
          auto future = allreduce(world, "x", data);
          if (drives) progress_until_ready(world, future);
          const auto outcome = outcome_of(std::move(future));
          EXPECT_TRUE(outcome.world_failed);
          EXPECT_TRUE(mentions(outcome, "the test has had enough")) << outcome.status.to_string();
          EXPECT_TRUE(world.wait_idle(Clock::now() + kLong));
        },
        on_one_host);
  }
}

TEST(WorldLanes, ARankThatIsLostFailsTheOthersInTheirLanes) {
  std::barrier all(kRanks);
  on_ranks(RanksAs::threads, kRanks, [&](int rank, runtime::Exchange& exchange) {
    auto spec = spec_of(rank, kRanks);
    on_one_host(spec);
    auto world = World::create(spec, exchange);
    ASSERT_TRUE(world.ok()) << world.status().to_string();
    enter_lane(**world, "x");
    all.arrive_and_wait();
    if (rank == 2) return;  // without shutdown()
    std::vector<float> data(5, 1);
    const auto outcome = reduce(**world, "x", data);
    EXPECT_TRUE(outcome.world_failed);
    EXPECT_EQ(outcome.rank, 2) << outcome.status.to_string();
  });
}

TEST(WorldLanes, AStallEndsTheWorldAndNamesTheMissingRank) {
  std::barrier over(kRanks);
  run_world(
      kRanks,
      [&](int rank, World& world) {
        for (int call = 0; call < 3; ++call) expect_sum(world, "x");
        if (rank != 2) {
          std::vector<float> data(5, 1);
          const auto outcome = reduce(world, "x", data);
          EXPECT_TRUE(outcome.world_failed);
          EXPECT_EQ(outcome.rank, 2);
          EXPECT_TRUE(mentions(outcome, "has not asked for \"x\"")) << outcome.status.to_string();
        }
        over.arrive_and_wait();
      },
      [](WorldSpec& spec) {
        on_one_host(spec);
        spec.config.stall_warning = std::chrono::milliseconds(400);
        spec.config.stall_shutdown = std::chrono::milliseconds(1200);
      });
}

TEST(WorldLanes, ARankThatIsLateForLongerThanTheOthersArePatientIsWaitedFor) {
  run_world_to_end(
      kRanks,
      [](int rank, World& world) {
        for (int round = 0; round < 4; ++round) {
          for (int call = 0; call < 4; ++call) expect_sum(world, "x");
          // The others ask rank 0 for it, which says so.
          std::vector<float> data(5, 1);
          auto own = rank == 1 ? std::future<Failure>() : allreduce(world, "x", data);
          if (rank == 0) {
            EXPECT_TRUE(eventually(
                [&] { return world.activity().missing.find("\"x\"") != std::string::npos; }));
          }
          expect_sum(world, cat("go on ", round));
          if (rank == 1) own = allreduce(world, "x", data);
          EXPECT_TRUE(outcome_of(std::move(own)).ok());
          EXPECT_EQ(data, std::vector<float>(5, kRanks));
        }
      },
      [](WorldSpec& spec) {
        on_one_host(spec);
        spec.config.stall_warning = std::chrono::milliseconds(80);
      });
}

TEST(WorldLanes, ASetThatIsRemovedFailsItsCallsOnAllMembers) {
  run_world_to_end(
      kRanks,
      [](int rank, World& world) {
        Entry add;
        add.request = add_set("pair", {0, 2});
        const int set = outcome_of(submit(world, std::move(add))).process_set;
        std::vector<float> data(5, 1);
        const auto reduce_in_set = [&] {
          auto request = allreduce_request("x", 5);
          request.process_set = set;
          return submit(world, std::move(request), data.data(), data.data());
        };
        if (rank != 1) {
          for (int call = 0; call < 4; ++call) ASSERT_TRUE(outcome_of(reduce_in_set()).ok());
          EXPECT_EQ(world.cache_stats().in_lanes, 2U);
          EXPECT_EQ(data, std::vector<float>(5, 16));
        }
        std::future<Failure> own;
        if (rank == 0) own = reduce_in_set();
        Entry removal;
        removal.request = remove_set("remove", set);
        EXPECT_TRUE(outcome_of(submit(world, std::move(removal))).ok());
        if (rank == 0) {
          EXPECT_EQ(outcome_of(std::move(own)).status.code(), Code::not_found);
        }
      },
      on_one_host);
}

TEST(WorldLanes, ATimelineShowsEveryCallThatFollowsItsStart) {
  const TemporaryDirectory folder;
  const std::string file = (folder.path() / "timeline.json").string();
  run_world_to_end(
      kRanks,
      [&](int rank, World& world) {
        enter_lane(world, "x");
        if (rank == 0) {
          EXPECT_TRUE(world.start_timeline(file, false).ok());
        }
        for (int call = 0; call < 10; ++call) expect_sum(world, "x");
        EXPECT_EQ(world.cache_stats().in_lanes, 1U);
        if (rank == 0) {
          EXPECT_TRUE(world.stop_timeline(Clock::now() + kLong).ok());
        }
      },
      on_one_host);
  EXPECT_GT(std::filesystem::file_size(file), 1000U);
}

// Random programs, the same on all ranks but for the order: calls whose shapes change now and then,
// large tensors between them, and either joins or more tensors than the cache has room for.
TEST(WorldLanes, RandomProgramsGetTheSumsOfTheirOwnCalls) {
  for (unsigned seed = 0; seed < 4; ++seed) {
    const int size = 2 + static_cast<int>(seed);
    run_world_to_end(
        size,
        [&](int rank, World& world) {
          std::mt19937 program(seed);
          std::mt19937 own(seed * 100 + static_cast<unsigned>(rank));
          std::vector<std::size_t> elements(8, 3);
          for (int step = 0; step < 60; ++step) {
            if (program() % 4 == 0) elements[program() % 8] = 1 + program() % 3000;
            std::vector<std::vector<float>> data;
            for (const auto count : elements) {
              data.emplace_back(count, static_cast<float>(rank + step));
            }
            std::vector<std::size_t> order{0, 1, 2, 3, 4, 5, 6, 7};
            std::shuffle(order.begin(), order.end(), own);
            std::vector<std::future<Failure>> futures(8);
            for (const auto i : order) futures[i] = allreduce(world, cat("t", i), data[i]);
            const bool joins = seed % 2 == 0 && program() % 10 == 0;
            if (joins) {
              ASSERT_TRUE(join(world).ok());
            }
            for (const auto i : order) {
              if (own() % 2 == 0) progress_until_ready(world, futures[i]);
              const auto outcome = outcome_of(std::move(futures[i]));
              ASSERT_TRUE(outcome.ok()) << outcome.status.to_string();
              const float wanted = sum_of_ranks(size) + static_cast<float>(size * step);
              ASSERT_EQ(data[i], std::vector<float>(elements[i], wanted)) << "step " << step;
            }
          }
          EXPECT_GT(world.cache_stats().in_lanes, 0U);
        },
        [seed](WorldSpec& spec) {
          on_one_host(spec);
          if (seed % 2 == 1) spec.config.cache_capacity = 6;
        });
  }
}

}  // namespace
}  // namespace hvd::test
