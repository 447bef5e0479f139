// Negotiation besides plain tensors, over real connections: process sets, joins, groups and stalls;
// and trees of which a part is lost.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "tests/runtime/control/worlds.h"
#include "tests/runtime/negotiation/negotiation_tools.h"

namespace hvd::runtime {
namespace {

using test::kLong;
using test::mentions;
using test::outcome_of;
using test::run_world;
using test::run_world_to_end;
using test::submit;

Outcome call(World& world, Request request) {
  Entry entry;
  entry.request = std::move(request);
  return outcome_of(submit(world, std::move(entry)));
}

Outcome reduce(World& world, Request request, std::vector<float>& data) {
  Entry entry;
  entry.request = std::move(request);
  entry.request.kind = Kind::allreduce;
  entry.request.shape = {static_cast<std::int64_t>(data.size())};
  entry.input = entry.output = data.data();
  return outcome_of(submit(world, std::move(entry)));
}

int add_set(World& world, const std::string& name, std::vector<int> ranks) {
  const auto outcome = call(world, test::add_set(name, std::move(ranks)));
  EXPECT_TRUE(outcome.ok()) << outcome.failure.status.to_string();
  return outcome.process_set;
}

Request removal(int process_set) { return test::remove_set("remove", process_set); }

class WorldSends : public ::testing::TestWithParam<Transport> {
 protected:
  static std::future<Outcome> start(World& world, const std::string& name, int sender, int receiver,
                                    std::vector<float>& data) {
    Entry entry;
    entry.request = test::send_recv(name, sender, receiver);
    entry.request.shape = {static_cast<std::int64_t>(data.size())};
    entry.input = entry.output = data.data();
    return submit(world, std::move(entry));
  }
  static test::Change transport() {
    return [](WorldSpec& spec) { spec.config.transport = GetParam(); };
  }
};

// From each rank to each, with collectives between them, in an order of each rank's own.
TEST_P(WorldSends, ReachTheirReceiverWhileTheOthersGoOn) {
  constexpr int kRanks = 5;
  constexpr std::size_t kSizes[] = {0, 1, 1000, 3'000'000};
  const auto value = [](int sender, int receiver) {
    return static_cast<float>(10 * sender + receiver);
  };
  run_world_to_end(
      kRanks,
      [&](int rank, World& world) {
        for (const auto size : kSizes) {
          std::vector<std::future<Outcome>> sent;
          std::vector<std::vector<float>> data(2 * kRanks, std::vector<float>(size));
          for (int step = 1; step < kRanks; ++step) {
            const int other = (rank + step) % kRanks;
            auto& own = data[static_cast<std::size_t>(other)];
            std::fill(own.begin(), own.end(), value(rank, other));
            sent.push_back(start(world, cat(rank, "->", other), rank, other, own));
          }
          std::vector<float> sum(100, 1);
          ASSERT_TRUE(reduce(world, test::tensor("sum"), sum).ok());
          EXPECT_EQ(sum, std::vector<float>(100, kRanks));
          for (int other = kRanks - 1; other >= 0; --other) {
            if (other == rank) continue;
            auto& in = data[static_cast<std::size_t>(kRanks + other)];
            const auto outcome = outcome_of(start(world, cat(other, "->", rank), other, rank, in));
            ASSERT_TRUE(outcome.ok()) << outcome.failure.status.to_string();
            EXPECT_EQ(in, std::vector<float>(size, value(other, rank)));
          }
          for (auto& one : sent) EXPECT_TRUE(outcome_of(std::move(one)).ok());
        }
      },
      transport());
}

TEST_P(WorldSends, ErrorsReachBothEndsAndTheWorldGoesOn) {
  run_world_to_end(
      3,
      [](int rank, World& world) {
        std::vector<float> data(rank == 0 ? 4 : 6, 1);
        if (rank != 2) {
          const auto outcome = outcome_of(start(world, "s", 0, 1, data));
          EXPECT_TRUE(mentions(outcome.failure, "Mismatched send_recv tensor shapes"));
        } else {
          const auto outcome = outcome_of(start(world, "s", 0, 1, data));
          EXPECT_TRUE(mentions(outcome.failure, "this rank, 2, neither sends nor receives it"));
        }
        std::vector<float> sum(4, 1);
        EXPECT_TRUE(reduce(world, test::tensor("sum"), sum).ok());
      },
      transport());
}

TEST_P(WorldSends, AReceiveFromARankThatDiesFailsWithTheWorld) {
  std::barrier all_have_it(3);
  run_world(
      3,
      [&](int rank, World& world) {
        std::vector<float> data(10);
        const auto outcome_of_first = reduce(world, test::tensor("first"), data);
        all_have_it.arrive_and_wait();
        ASSERT_TRUE(outcome_of_first.ok());
        if (rank == 1) return;  // destroyed without a goodbye
        const int sender = rank == 0 ? 1 : 0;
        const auto outcome = outcome_of(start(world, cat("to ", rank), sender, rank, data));
        EXPECT_TRUE(outcome.failure.world_failed) << outcome.failure.status.to_string();
      },
      transport());
}

INSTANTIATE_TEST_SUITE_P(Transports, WorldSends,
                         ::testing::Values(Transport::hvd, Transport::gloo_tcp),
                         [](const auto& test_info) {
                           return test_info.param == Transport::hvd ? "Hvd" : "GlooTcp";
                         });

TEST(WorldSets, MembersReduceAmongThemselvesUnderNamesOfTheirOwn) {
  run_world_to_end(6, [](int rank, World& world) {
    const int even = add_set(world, "even", {0, 2, 4});
    const int high = add_set(world, "high", {3, 4, 5});
    EXPECT_NE(even, high);
    for (int step = 0; step < 20; ++step) {  // later steps use cache ids
      const auto check = [&](int set, std::vector<int> ranks) {
        if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) return;
        std::vector<float> data(10, static_cast<float>(rank + step));
        const auto outcome = reduce(world, test::in_set(test::tensor("same name"), set), data);
        ASSERT_TRUE(outcome.ok()) << outcome.failure.status.to_string();
        const auto sum =
            std::accumulate(ranks.begin(), ranks.end(), 0) + step * static_cast<int>(ranks.size());
        EXPECT_EQ(data, std::vector<float>(10, static_cast<float>(sum)));
      };
      check(even, {0, 2, 4});
      check(kGlobalSet, {0, 1, 2, 3, 4, 5});
      check(high, {3, 4, 5});
    }
  });
}

TEST(WorldSets, RulesAreToldApartByTheirErrors) {
  run_world_to_end(3, [](int rank, World& world) {
    const int set = add_set(world, "s", {0, 2});
    const auto again = call(world, test::add_set("again", {0, 2}));
    EXPECT_EQ(again.failure.status.code(), Code::already_exists);
    EXPECT_TRUE(mentions(again.failure, cat("process set ", set)));
    const auto differ = call(world, test::add_set("differ", {0, rank == 0 ? 1 : 2}));
    EXPECT_EQ(differ.failure.status.code(), Code::invalid_argument);
    EXPECT_TRUE(mentions(differ.failure, "Mismatched process sets"));
    EXPECT_EQ(call(world, removal(kGlobalSet)).failure.status.code(), Code::invalid_argument);
    EXPECT_EQ(call(world, removal(99)).failure.status.code(), Code::not_found);
    std::vector<float> data(4, 1);
    EXPECT_EQ(reduce(world, test::in_set(test::tensor("x"), 99), data).failure.status.code(),
              Code::not_found);
    if (rank == 1) {
      const auto outcome = reduce(world, test::in_set(test::tensor("x"), set), data);
      EXPECT_EQ(outcome.failure.status.code(), Code::permission_denied);
      EXPECT_TRUE(mentions(outcome.failure, "rank 1 is not in process set"));
    } else {
      auto request = test::in_set(test::of_kind(Kind::broadcast, "b"), set);
      request.root = 1;
      EXPECT_EQ(call(world, request).failure.status.code(), Code::invalid_argument);
    }
    EXPECT_FALSE(world.failure().world_failed);
  });
}

TEST(WorldSets, TensorsInFlightInASetThatIsRemovedFail) {
  run_world_to_end(4, [](int rank, World& world) {
    for (int round = 0; round < 10; ++round) {
      const int set = add_set(world, "s", {1, 2, 3});
      std::vector<float> data(4, 1);
      std::future<Outcome> pending;
      if (rank == 1 || rank == 3) {  // rank 2 never does
        Entry entry;
        entry.request = test::in_set(test::tensor("pending"), set);
        entry.input = entry.output = data.data();
        pending = submit(world, std::move(entry));
      }
      ASSERT_TRUE(call(world, removal(set)).ok());
      if (pending.valid()) {
        const auto outcome = outcome_of(std::move(pending));
        EXPECT_TRUE(mentions(outcome.failure, "was removed while it was in flight"))
            << outcome.failure.status.message();
      }
      EXPECT_EQ(reduce(world, test::in_set(test::tensor("x"), set), data).failure.status.code(),
                Code::not_found);
    }
  });
}

TEST(WorldSets, MembersAddAndRemoveThemWhileTheOthersDoNothingOfTheKind) {
  run_world_to_end(5, [](int rank, World& world) {
    for (int round = 0; round < 10; ++round) {
      const std::vector<int> pair{round % 4, 4};
      const bool is_member = rank == pair[0] || rank == pair[1];
      auto add = test::by_members(test::add_set(cat("add", round), pair));
      int set = 2 * round + 1;
      if (is_member) {
        const auto added = call(world, add);
        ASSERT_TRUE(added.ok()) << added.failure.status.to_string();
        EXPECT_EQ(added.process_set, set);
        std::vector<float> data(4, static_cast<float>(rank));
        EXPECT_TRUE(reduce(world, test::in_set(test::tensor("t"), set), data).ok());
        EXPECT_EQ(data, std::vector<float>(4, static_cast<float>(pair[0] + pair[1])));
      } else {
        const auto refused = call(world, add);
        EXPECT_EQ(refused.failure.status.code(), Code::permission_denied);
        EXPECT_TRUE(mentions(refused.failure, "is not one of the members, who alone call it"));
      }
      // The order of responses is one: after a call of all ranks each of them knows of the set.
      EXPECT_EQ(add_set(world, cat("all", round), {0, 1}), set + 1);
      EXPECT_TRUE(world.is_by_members(set) && !world.is_by_members(set + 1));
      EXPECT_EQ(*world.process_set(set), test::ranks(pair));
      ASSERT_TRUE(call(world, removal(set + 1)).ok());
      if (!is_member) continue;
      auto remove = test::by_members(test::remove_set(cat("remove", round), set));
      remove.ranks = pair;
      ASSERT_TRUE(call(world, remove).ok());
      EXPECT_FALSE(world.process_set(set).ok());
    }
  });
}

TEST(WorldJoin, RanksThatHaveNoMoreWorkTakePartUntilAllHaveJoined) {
  constexpr int kSize = 5;
  run_world_to_end(kSize, [](int rank, World& world) {
    for (int epoch = 0; epoch < 3; ++epoch) {
      // Rank r has r + 1 steps of work.
      for (int step = 0; step <= rank; ++step) {
        std::vector<float> data(100, static_cast<float>(rank + 1));
        auto request = test::tensor("gradient");
        request.op = ReduceOp::min;
        const auto outcome = reduce(world, request, data);
        ASSERT_TRUE(outcome.ok()) << outcome.failure.status.to_string();
        EXPECT_EQ(data, std::vector<float>(100, static_cast<float>(step + 1)));  // ranks left
      }
      const auto outcome = call(world, test::of_kind(Kind::join, cat("join of ", rank), {0}));
      ASSERT_TRUE(outcome.ok()) << outcome.failure.status.to_string();
      EXPECT_EQ(outcome.last_joined, kSize - 1);
    }
  });
}

TEST(WorldJoin, NothingCanBeAskedForBeforeItHasEnded) {
  std::promise<void> refused;
  run_world_to_end(2, [&](int rank, World& world) {
    if (rank == 0) {
      Entry entry;
      entry.request = test::of_kind(Kind::join, "j", {0});
      auto joined = submit(world, std::move(entry));  // rank 1 waits, so it is in flight
      std::vector<float> data(4, 1);
      EXPECT_EQ(reduce(world, test::tensor("x"), data).failure.status.code(),
                Code::invalid_argument);
      EXPECT_EQ(call(world, test::of_kind(Kind::join, "other", {0})).failure.status.code(),
                Code::invalid_argument);
      refused.set_value();
      EXPECT_TRUE(outcome_of(std::move(joined)).ok());
    } else {
      refused.get_future().wait();
      EXPECT_TRUE(call(world, test::of_kind(Kind::join, "j", {0})).ok());
    }
  });
}

TEST(WorldJoin, ABroadcastFromARankThatHasJoinedIsAnErrorOnAllOthers) {
  run_world_to_end(3, [](int rank, World& world) {
    if (rank != 0) {
      // Rank 0 does not ask for it, so it is complete only with rank 0's join.
      auto request = test::of_kind(Kind::broadcast, "b");
      request.type = DataType::uint8;
      std::array<std::uint8_t, 4> bytes{};
      Entry entry;
      entry.request = request;
      entry.input = entry.output = bytes.data();
      const auto outcome = outcome_of(submit(world, std::move(entry)));
      EXPECT_TRUE(mentions(outcome.failure, "the root, rank 0 on h0#0, has joined"))
          << outcome.failure.status.message();
    }
    EXPECT_TRUE(call(world, test::of_kind(Kind::join, "j", {0})).ok());
  });
}

TEST(WorldGroups, RunTogetherOrFailTogether) {
  run_world_to_end(3, [](int rank, World& world) {
    for (int step = 0; step < 5; ++step) {
      std::vector<std::vector<float>> data(4, std::vector<float>(7, 1));
      std::vector<std::future<Outcome>> futures;
      std::vector<Entry> entries;
      for (std::size_t i = 0; i < data.size(); ++i) {
        auto promise = std::make_shared<std::promise<Outcome>>();
        futures.push_back(promise->get_future());
        Entry entry;
        entry.request = test::in_group(test::tensor(cat("g", i), 7), "g", 4);
        if (step == 3 && i == 2 && rank == 1) entry.request.op = ReduceOp::max;
        entry.input = entry.output = data[i].data();
        entry.done = [promise](const Outcome& outcome) { promise->set_value(outcome); };
        entries.push_back(std::move(entry));
      }
      const auto refused = world.enqueue(std::move(entries));
      ASSERT_TRUE(refused.ok()) << refused.status.to_string();
      for (std::size_t i = 0; i < futures.size(); ++i) {
        const auto outcome = outcome_of(std::move(futures[i]));
        if (step == 3) {
          EXPECT_TRUE(mentions(outcome.failure, "Mismatched reduce operations"));
        } else {
          EXPECT_TRUE(outcome.ok()) << outcome.failure.status.to_string();
          EXPECT_EQ(data[i], std::vector<float>(7, 3));
        }
      }
    }
    // An incomplete group would wait for ever.
    std::vector<float> data(7, 1);
    EXPECT_EQ(
        reduce(world, test::in_group(test::tensor("g0", 7), "g", 4), data).failure.status.code(),
        Code::invalid_argument);
  });
}

TEST(WorldGroups, AreEnqueuedWholeOrNotAtAll) {
  run_world_to_end(1, [](int /*rank*/, World& world) {
    std::vector<Entry> entries(2);
    for (auto& entry : entries) entry.request = test::in_group(test::tensor("twice", 0), "g", 2);
    EXPECT_EQ(world.enqueue(std::move(entries)).status.code(), Code::invalid_argument);
    std::vector<float> data(4, 1);
    EXPECT_TRUE(reduce(world, test::tensor("twice"), data).ok());
  });
}

TEST(WorldCache, ShapesThatChangeAreRightInEveryStep) {
  run_world_to_end(
      4,
      [](int rank, World& world) {
        for (int step = 0; step < 60; ++step) {
          std::vector<std::vector<float>> data;
          std::vector<std::future<Outcome>> futures;
          for (int i = 0; i < 6; ++i) {
            // Some change their shapes now and then; more than fit in the cache.
            data.emplace_back(static_cast<std::size_t>(5 + (i % 2 == 0 ? step / 7 : 0)), 1.0F);
          }
          for (int k = 0; k < 6; ++k) {
            const auto i = static_cast<std::size_t>((k + rank) % 6);
            Entry entry;
            entry.request = test::tensor(cat("t", i), static_cast<std::int64_t>(data[i].size()));
            entry.input = entry.output = data[i].data();
            futures.push_back(submit(world, std::move(entry)));
          }
          for (auto& future : futures) {
            const auto outcome = outcome_of(std::move(future));
            ASSERT_TRUE(outcome.ok()) << outcome.failure.status.to_string();
          }
          for (const auto& tensor : data) ASSERT_EQ(tensor, std::vector<float>(tensor.size(), 4));
        }
      },
      [](WorldSpec& spec) { spec.config.cache_capacity = 4; });
}

TEST(WorldStall, ThatLastsTooLongEndsTheWorldAndNamesTheMissingRank) {
  std::barrier over(4);
  run_world(
      4,
      [&](int rank, World& world) {
        std::vector<float> data(4, 1);
        ASSERT_TRUE(outcome_of(test::allreduce(world, "before", data)).ok());
        if (rank != 3) {
          const auto outcome = outcome_of(test::allreduce(world, "stalled", data));
          EXPECT_TRUE(outcome.world_failed);
          EXPECT_EQ(outcome.rank, 3);
          EXPECT_TRUE(mentions(outcome, "rank 3 on h1#1 has not asked for \"stalled\""))
              << outcome.status.message();
          EXPECT_TRUE(mentions(outcome, "asked for \"before\" last")) << outcome.status.message();
        }
        over.arrive_and_wait();
      },
      [](WorldSpec& spec) {
        spec.config.stall_warning = std::chrono::milliseconds(40);
        spec.config.stall_shutdown = std::chrono::milliseconds(120);
      });
}

// Twelve ranks, two on a host: below rank 2 are 3 (its host), 10 (a leader), and 11 below that.
TEST(WorldTree, ADeadRankIsNamedOnBothSidesOfTheGap) {
  constexpr int kSize = 12;
  for (const int victim : {0, 2, 3, 10, 11}) {
    std::barrier all_have_it(kSize);
    run_world(kSize, [&](int rank, World& world) {
      std::vector<float> data(100, 1);
      ASSERT_TRUE(outcome_of(test::allreduce(world, "first", data)).ok());
      all_have_it.arrive_and_wait();
      if (rank == victim) return;
      const auto outcome = outcome_of(test::allreduce(world, "second", data));
      EXPECT_EQ(outcome.rank, victim) << rank << ": " << outcome.status.message();
      EXPECT_EQ(outcome.host, cat("h", victim / 2));
    });
  }
}

TEST(WorldTree, AnAbortReachesAllFromEveryPlace) {
  constexpr int kSize = 12;
  for (const int aborter : {0, 2, 11}) {
    std::barrier all_have_it(kSize);
    run_world(kSize, [&](int rank, World& world) {
      std::vector<float> data(100, 1);
      ASSERT_TRUE(outcome_of(test::allreduce(world, "first", data)).ok());
      all_have_it.arrive_and_wait();
      if (rank == aborter) world.abort({Status(Code::aborted, cat("said ", rank)), -1, {}});
      const auto outcome = outcome_of(test::allreduce(world, "second", data));
      EXPECT_TRUE(mentions(outcome, cat("said ", aborter))) << outcome.status.message();
    });
  }
}

TEST(WorldTree, AnInnerRankThatWaitsNoLongerIsMissed) {
  std::barrier all_are_there(4);
  run_world(4, [&](int rank, World& world) {
    all_are_there.arrive_and_wait();
    if (rank == 2) {  // the leader of 3
      EXPECT_EQ(world.shutdown(Clock::now() + std::chrono::milliseconds(20)).status.code(),
                Code::deadline_exceeded);
      return;
    }
    const auto outcome = [&] {
      std::vector<float> data(4, 1);
      Failure failure;
      // As long as rank 2 is connected it has only left.
      do {
        failure = outcome_of(test::allreduce(world, "x", data));
      } while (!failure.world_failed);
      return failure;
    }();
    EXPECT_TRUE(mentions(outcome, "rank 2 on h1#0")) << outcome.status.message();
  });
}

// How often the progress threads of this process have gone to sleep so far.
long sleeps_of_control_threads() {
  long total = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::ifstream(task.path() / "comm") >> name;
    if (name != "hvd-control") continue;
    std::ifstream status(task.path() / "status");
    for (std::string word; status >> word;) {
      long count = 0;
      if (word == "voluntary_ctxt_switches:" && status >> count) total += count;
    }
  }
  return total;
}

TEST(WorldTree, AnIdleWorldSleeps) {
  std::barrier idle(8);
  run_world_to_end(8, [&](int rank, World& world) {
    std::vector<float> data(4, 1);
    ASSERT_TRUE(outcome_of(test::allreduce(world, "x", data)).ok());
    idle.arrive_and_wait();
    if (rank == 0) {
      // The last messages of the step may still be under way, but not for long.
      const auto deadline = Clock::now() + kLong;
      long before = -1;
      long after = sleeps_of_control_threads();
      while (before != after && Clock::now() < deadline) {
        before = after;
        std::this_thread::sleep_for(std::chrono::milliseconds(300));  // what is watched
        after = sleeps_of_control_threads();
      }
      EXPECT_EQ(before, after);
    }
    idle.arrive_and_wait();
  });
}

}  // namespace
}  // namespace hvd::runtime
