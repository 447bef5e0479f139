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

TEST(WorldLeave, AShutdownThatGivesUpNamesTheCallsAndIsNotDenied) {
  std::latch all_have_called(2);
  run_world(2, [&](int rank, World& world) {
    std::vector<float> data(3, 1);
    auto own = test::allreduce(world, cat("only rank ", rank, "'s"), data);
    all_have_called.arrive_and_wait();
    if (rank == 0) {
      const auto left = world.shutdown(Clock::now() + std::chrono::milliseconds(20));
      EXPECT_EQ(left.status.code(), Code::deadline_exceeded);
      EXPECT_TRUE(mentions(left, "not ended: allreduce \"only rank 0's\""))
          << left.status.message();
      return;
    }
    const auto outcome = outcome_of(std::move(own));
    EXPECT_TRUE(mentions(outcome,
                         "rank 0 on h0#0 has called shutdown(), and no longer waits for "
                         "its calls in flight"))
        << outcome.status.message();
  });
}

}  // namespace
}  // namespace hvd::runtime
