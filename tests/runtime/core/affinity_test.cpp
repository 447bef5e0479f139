#include "runtime/core/affinity.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <unistd.h>

#include "tests/runtime/control/worlds.h"

namespace hvd::test {
namespace {

struct Thread {
  std::string name;
  std::string cores;
};

// The threads of this process, by their numbers, as /proc has them.
std::map<std::string, Thread> threads() {
  std::map<std::string, Thread> all;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    Thread thread;
    for (std::string key; std::getline(status, key, ':');) {
      std::string value;
      std::getline(status >> std::ws, value);
      if (key == "Name") thread.name = value;
      if (key == "Cpus_allowed_list") thread.cores = value;
    }
    all[task.path().filename()] = thread;
  }
  return all;
}

TEST(Affinity, HoldsForEveryThreadOfAWorldAndForNoOther) {
  const auto before = threads();
  const int core = runtime::usable_cores().back();
  run_world_to_end(
      2,
      [&](int rank, runtime::World& world) {
        std::vector<float> data{1};
        EXPECT_TRUE(outcome_of(allreduce(world, "x", data)).ok());
        if (rank != 0) return;
        std::map<std::string, int> pinned;
        for (const auto& [number, thread] : threads()) {
          if (before.contains(number)) continue;
          if (thread.cores == cat(core)) ++pinned[thread.name];
        }
        EXPECT_EQ(pinned["hvd-control"], 2);
        EXPECT_EQ(pinned["hvd-executor"], 2);
        EXPECT_EQ(pinned["hvd-connect"], 2);
      },
      [&](runtime::WorldSpec& spec) { spec.config.core = core; });
  for (const auto& [number, thread] : threads()) {
    if (before.contains(number)) {
      EXPECT_EQ(thread.cores, before.at(number).cores) << "of " << thread.name;
    }
  }
}

// How many threads of that name have only this core, by core; none of them was there before.
using Pinned = std::map<std::string, int>;
Pinned executors_by_cores(int ranks, bool bound = false) {
  const auto before = threads();
  Pinned found;
  run_world_to_end(
      ranks,
      [&](int rank, runtime::World& world) {
        std::vector<float> data{1};
        EXPECT_TRUE(outcome_of(allreduce(world, "x", data)).ok());
        if (rank != 0) return;
        for (const auto& [number, thread] : threads()) {
          if (!before.contains(number) && thread.name == "hvd-executor") ++found[thread.cores];
        }
      },
      [bound](runtime::WorldSpec& spec) {
        for (auto& member : spec.members) member.host = "h0";
        spec.config.bound = bound;
      });
  return found;
}

TEST(Affinity, RanksThatOutnumberTheCoresOfTheirHostAreSpreadOverThem) {
  const auto cores = runtime::usable_cores();
  Pinned expected;
  for (const int core : cores) expected[cat(core)] = 2;
  EXPECT_EQ(executors_by_cores(2 * static_cast<int>(cores.size())), expected);
}

TEST(Affinity, RanksThatCanHaveACoreEachUseAny) {
  const int cores = static_cast<int>(runtime::usable_cores().size());
  if (cores < 2) GTEST_SKIP() << "there is only one core";
  const auto all = threads().at(cat(::getpid())).cores;
  EXPECT_EQ(executors_by_cores(cores), (Pinned{{all, cores}}));
}

// Their cores are no measure of those of the host: each has only its own.
TEST(Affinity, RanksThatAreBoundToCoresOfTheirOwnAreLeftThere) {
  const int ranks = 2 * static_cast<int>(runtime::usable_cores().size());
  const auto all = threads().at(cat(::getpid())).cores;
  EXPECT_EQ(executors_by_cores(ranks, true), (Pinned{{all, ranks}}));
}

TEST(Affinity, AThreadLeavesCoresAndMayUseThemAfterwards) {
  const auto cores = runtime::usable_cores();
  if (cores.size() < 2) GTEST_SKIP() << "there is only one core";
  constexpr int kTries = 20;
  int elsewhere = 0;
  std::thread([&] {
    for (int i = 0; i < kTries; ++i) {
      // The destructor gives it all cores again, which moves nothing.
      EXPECT_TRUE(runtime::PinnedThread().pin(cores.front()).ok());
      EXPECT_TRUE(runtime::leave_cores({cores.front(), -1, 100'000}));
      // The scheduler may have moved it back, but rarely.
      if (::sched_getcpu() != cores.front()) ++elsewhere;
      EXPECT_EQ(runtime::usable_cores(), cores);
    }
  }).join();
  EXPECT_GT(elsewhere, kTries / 2);
}

TEST(Affinity, AThreadWithoutAnotherCoreStays) {
  const auto cores = runtime::usable_cores();
  EXPECT_FALSE(runtime::leave_cores(cores));
  EXPECT_EQ(runtime::usable_cores(), cores);
}

TEST(Affinity, ACoreThatDoesNotExistIsAClearErrorAndChangesNothing) {
  const auto cores = threads().at(cat(::getpid())).cores;
  auto spec = spec_of(0, 1);
  spec.config.core = 100'000;
  Hub hub(1);
  HubExchange exchange(hub, 0);
  const auto world = runtime::World::create(spec, exchange);
  ASSERT_FALSE(world.ok());
  EXPECT_EQ(world.status().code(), Code::invalid_argument);
  EXPECT_NE(world.status().message().find(
                "cannot run on core 100000; the cores that it may use are " + cores),
            std::string::npos)
      << world.status().message();
  EXPECT_EQ(threads().at(cat(::getpid())).cores, cores);
}

}  // namespace
}  // namespace hvd::test
