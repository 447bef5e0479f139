// The end of a world: shutdown() on all ranks, on some of them, and with calls in flight.
#include <future>
#include <gtest/gtest.h>
#include <latch>

#include "base/text.h"
#include "tests/runtime/control/worlds.h"

namespace hvd::runtime {
namespace {

using test::kLong;
using test::mentions;
using test::outcome_of;
using test::run_world;

TEST(WorldLeave, ACollectiveAfterAnotherRankLeftIsAnError) {
  run_world(3, [&](int rank, World& world) {
    if (rank == 1) {
      EXPECT_TRUE(world.shutdown(Clock::now() + kLong).ok());
      return;
    }
    std::vector<float> data(3, 1);
    // Of several ranks that have left, one is named.
    const auto outcome = outcome_of(test::allreduce(world, "x", data));
    EXPECT_TRUE(mentions(outcome, " has already called shutdown()")) << outcome.status.message();
    EXPECT_FALSE(outcome.world_failed);
    const auto left = world.shutdown(Clock::now() + kLong);
    EXPECT_TRUE(left.ok()) << left.status.to_string();
    EXPECT_FALSE(outcome_of(test::allreduce(world, "y", data)).ok());
  });
}

TEST(WorldLeave, ShutdownEndsAtItsDeadlineWhenTheOthersDoNotCome) {
  std::promise<void> gone;
  const auto go_on = gone.get_future().share();
  run_world(2, [&](int rank, World& world) {
    if (rank == 1) {
      const auto left = world.shutdown(Clock::now() + std::chrono::milliseconds(20));
      EXPECT_EQ(left.status.code(), Code::deadline_exceeded);
      gone.set_value();
      return;  // and leaves, which is no loss to the other one
    }
    go_on.wait();
    EXPECT_TRUE(world.shutdown(Clock::now() + kLong).ok());
  });
}

// The ranks of two hosts or more also pass it on to each other.
TEST(WorldLeave, CallsThatTheOthersDoNotMakeFailWhenAllAreInShutdown) {
  for (const int size : {2, 3, 7}) {
    SCOPED_TRACE(size);
    std::latch all_have_called(size);
    run_world(size, [&](int rank, World& world) {
      std::vector<float> data(3, 1);
      // The second time, this rank asks by the id of the cached tensor.
      ASSERT_TRUE(outcome_of(test::allreduce(world, "a", data)).ok());
      auto own = test::allreduce(world, rank == 0 ? "a" : cat("only rank ", rank, "'s"), data);
      all_have_called.arrive_and_wait();
      const auto left = world.shutdown(Clock::now() + kLong);
      EXPECT_TRUE(left.ok()) << left.status.to_string();
      const auto outcome = outcome_of(std::move(own));
      EXPECT_TRUE(mentions(outcome, " has already called shutdown()"))
          << outcome.status.to_string();
      EXPECT_FALSE(outcome.world_failed);
    });
  }
}

TEST(WorldLeave, ACallThatNeedsARankInShutdownFailsThoughThatRankStillWaits) {
  run_world(3, [&](int rank, World& world) {
    std::vector<float> data(3, 1);
    if (rank == 1) {
      auto own = test::allreduce(world, "only rank 1's", data);
      EXPECT_TRUE(world.shutdown(Clock::now() + kLong).ok());
      EXPECT_TRUE(mentions(outcome_of(std::move(own)), " has already called shutdown()"));
      return;
    }
    const auto outcome = outcome_of(test::allreduce(world, "of the others", data));
    EXPECT_TRUE(mentions(outcome, " has already called shutdown()")) << outcome.status.message();
    EXPECT_TRUE(world.shutdown(Clock::now() + kLong).ok());
  });
}

TEST(WorldLeave, CallsThatAllRanksHaveMadeCompleteInShutdown) {
  std::latch in_shutdown(1);
  run_world(3, [&](int rank, World& world) {
    std::vector<std::vector<float>> data(100, {1, 2, 3});
    if (rank == 2) in_shutdown.wait();
    std::vector<std::future<Failure>> calls;
    for (std::size_t i = 0; i < data.size(); ++i) {
      calls.push_back(test::allreduce(world, cat("x", i), data[i]));
    }
    if (rank == 1) in_shutdown.count_down();
    EXPECT_TRUE(world.shutdown(Clock::now() + kLong).ok());
    for (std::size_t i = 0; i < data.size(); ++i) {
      const auto outcome = outcome_of(std::move(calls[i]));
      EXPECT_TRUE(outcome.ok()) << outcome.status.to_string();
      EXPECT_EQ(data[i][1], 6);
    }
  });
}

TEST(WorldLeave, NothingCanBeAddedWhileShutdownWaitsForCallsInFlight) {
  std::promise<void> refused;
  run_world(2, [&](int rank, World& world) {
    std::vector<float> data(3, 1);
    std::vector<float> more(3, 1);
    if (rank == 1) {
      refused.get_future().wait();
      EXPECT_TRUE(outcome_of(test::allreduce(world, "x", data)).ok());
      EXPECT_TRUE(world.shutdown(Clock::now() + kLong).ok());
      return;
    }
    auto own = test::allreduce(world, "x", data);
    const auto given_up = world.shutdown(Clock::now());
    EXPECT_EQ(given_up.status.code(), Code::deadline_exceeded);
    const auto added = outcome_of(test::allreduce(world, "y", more));
    EXPECT_TRUE(mentions(added, "nothing can be added")) << added.status.to_string();
    refused.set_value();
    EXPECT_TRUE(world.shutdown(Clock::now() + kLong).ok());
    EXPECT_TRUE(outcome_of(std::move(own)).ok());
  });
}

TEST(WorldLeave, ARankThatIsLostEndsTheShutdownOfTheOthers) {
  std::promise<void> waits;
  run_world(2, [&](int rank, World& world) {
    if (rank == 1) return waits.get_future().wait();
    std::vector<float> data(3, 1);
    auto own = test::allreduce(world, "x", data);
    EXPECT_EQ(world.shutdown(Clock::now()).status.code(), Code::deadline_exceeded);
    waits.set_value();
    const auto left = world.shutdown(Clock::now() + kLong);
    EXPECT_TRUE(left.world_failed);
    const auto outcome = outcome_of(std::move(own));
    EXPECT_TRUE(mentions(outcome, "without shutdown()")) << outcome.status.to_string();
  });
}

TEST(WorldLeave, AShutdownThatGivesUpNamesTheCallsAndIsNotDenied) {
  std::promise<void> given_up;
  run_world(2, [&](int rank, World& world) {
    if (rank == 0) {
      std::vector<float> data(3, 1);
      auto own = test::allreduce(world, "only rank 0's", data);
      const auto left = world.shutdown(Clock::now() + std::chrono::milliseconds(20));
      EXPECT_EQ(left.status.code(), Code::deadline_exceeded);
      EXPECT_TRUE(mentions(left, "not ended: allreduce \"only rank 0's\""))
          << left.status.message();
      world.abandon();
      given_up.set_value();
      return;
    }
    given_up.get_future().wait();
    const auto outcome = world.shutdown(Clock::now() + kLong);
    EXPECT_TRUE(mentions(outcome,
                         "rank 0 on h0#0 has called shutdown(), and no longer waits for "
                         "its calls in flight"))
        << outcome.status.message();
  });
}

}  // namespace
}  // namespace hvd::runtime
