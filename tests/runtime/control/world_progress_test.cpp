// Application threads that wait, and drive the progress of their world meanwhile.
#include <latch>
#include <mutex>
#include <thread>

#include "tests/runtime/control/worlds.h"

namespace hvd::test {
namespace {

using runtime::Failure;
using runtime::World;

Failure allreduce_with_progress(World& world, const std::string& name, std::vector<float>& data) {
  auto future = allreduce(world, name, data);
  progress_until_ready(world, future);
  return outcome_of(std::move(future));
}

void expect_sums(int size, int rank, World& world, int times) {
  for (int i = 0; i < times; ++i) {
    std::vector<float> data(1024, static_cast<float>(rank + i));
    const Failure outcome = allreduce_with_progress(world, cat("gradients.", i % 7), data);
    ASSERT_TRUE(outcome.ok()) << outcome.status.to_string();
    float sum = 0;
    for (int other = 0; other < size; ++other) sum += static_cast<float>(other + i);
    ASSERT_EQ(data, std::vector<float>(1024, sum)) << "round " << i;
  }
}

class WorldProgressOfMany : public testing::TestWithParam<int> {};

TEST_P(WorldProgressOfMany, WaitingThreadsGetTheSums) {
  const int size = GetParam();
  run_world_to_end(size, [size](int rank, World& world) { expect_sums(size, rank, world, 100); });
}

INSTANTIATE_TEST_SUITE_P(Sizes, WorldProgressOfMany, testing::Values(1, 2, 3, 4, 8));

TEST(WorldProgress, SmallOperationsRunOnTheWaitingThread) {
  run_world_to_end(2, [](int rank, World& world) {
    // Sometimes the progress thread is faster.
    int here = 0;
    for (int i = 0; i < 300; ++i) {
      std::vector<float> data(16, static_cast<float>(rank));
      std::promise<std::thread::id> where;
      auto told = where.get_future();
      runtime::Entry entry{allreduce_request("little", 16), data.data(), data.data(),
                           [&where](const runtime::Outcome& outcome) {
                             EXPECT_TRUE(outcome.ok());
                             where.set_value(std::this_thread::get_id());
                           }};
      entry.done_wakes_only = true;
      const auto refused = world.enqueue(std::move(entry));
      ASSERT_TRUE(refused.ok()) << refused.status.to_string();
      progress_until_ready(world, told);
      if (told.get() == std::this_thread::get_id()) ++here;
    }
    EXPECT_GT(here, 0);
  });
}

// The other rank asks for the sum only after this one has given up waiting.
TEST(WorldProgress, ADrivingCallerStopsAtItsDeadline) {
  std::latch has_stopped(1);
  run_world_to_end(2, [&has_stopped](int rank, World& world) {
    if (rank == 1) has_stopped.wait();
    std::vector<float> data(16, 1);
    auto sum = allreduce(world, "late", data);
    if (rank == 0) {
      const auto deadline = Clock::now() + std::chrono::milliseconds(20);
      world.progress_until([] { return false; }, deadline);
      EXPECT_GE(Clock::now(), deadline);
      has_stopped.count_down();
    }
    EXPECT_TRUE(outcome_of(std::move(sum)).ok());
    EXPECT_EQ(data, std::vector<float>(16, 2));
  });
}

TEST(WorldProgress, ManyThreadsOfARankMayWaitAtOnce) {
  constexpr int kThreads = 4;
  run_world_to_end(3, [](int rank, World& world) {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&world, rank, t] {
        for (int i = 0; i < 50; ++i) {
          std::vector<float> data(256, static_cast<float>(rank));
          const Failure outcome = allreduce_with_progress(world, cat("of thread ", t), data);
          ASSERT_TRUE(outcome.ok()) << outcome.status.to_string();
          ASSERT_EQ(data.front(), 3.0F);
        }
      });
    }
    for (auto& thread : threads) thread.join();
  });
}

TEST(WorldProgress, LargeAndSmallOperationsAreRightSideBySide) {
  run_world_to_end(2, [](int rank, World& world) {
    for (int i = 0; i < 20; ++i) {
      std::vector<float> large(1 << 20, static_cast<float>(rank));
      std::vector<float> little(64, static_cast<float>(rank));
      auto first = allreduce(world, "large", large);
      const Failure outcome = allreduce_with_progress(world, "little", little);
      ASSERT_TRUE(outcome.ok()) << outcome.status.to_string();
      ASSERT_TRUE(outcome_of(std::move(first)).ok());
      ASSERT_EQ(little.back(), 1.0F);
      ASSERT_EQ(large.back(), 1.0F);
    }
  });
}

TEST(WorldProgress, AnAbortEndsTheWaitOfADrivingCaller) {
  std::latch all_are_here(2);
  run_world(2, [&all_are_here](int rank, World& world) {
    all_are_here.arrive_and_wait();
    std::vector<float> data(16);
    if (rank == 1) world.abort(Status(Code::aborted, "enough"));
    const Failure outcome = allreduce_with_progress(world, cat("of rank ", rank), data);
    EXPECT_TRUE(mentions(outcome, "enough")) << outcome.status.to_string();
  });
}

TEST(WorldProgress, AnAbortIsHandledWhileTheCallerLeaves) {
  std::latch all_are_here(2);
  run_world(2, [&all_are_here](int rank, World& world) {
    all_are_here.arrive_and_wait();
    std::vector<float> data(16);
    auto never = allreduce(world, cat("of rank ", rank), data);
    // At the latest possible moment: the caller has already decided to return.
    world.progress_until([&world] {
      std::thread([&world] { world.abort(Status(Code::aborted, "enough")); }).join();
      return true;
    });
    const Failure outcome = outcome_of(std::move(never));
    EXPECT_TRUE(mentions(outcome, "enough")) << outcome.status.to_string();
  });
}

TEST(WorldProgress, CallbacksDoNotWaitForLocksOfTheWaitingThread) {
  run_world_to_end(2, [](int rank, World& world) {
    std::mutex mutex;
    for (int i = 0; i < 50; ++i) {
      std::vector<float> first(16, static_cast<float>(rank));
      std::vector<float> second(16, static_cast<float>(rank));
      std::promise<void> called;
      auto told = called.get_future();
      std::future<Failure> future;
      {
        const std::lock_guard lock(mutex);
        future = allreduce(world, "waited for", second);
        const auto refused = world.enqueue({allreduce_request("with a callback", 16), first.data(),
                                            first.data(), [&](const runtime::Outcome& /*outcome*/) {
                                              { const std::lock_guard inner(mutex); }
                                              called.set_value();
                                            }});
        ASSERT_TRUE(refused.ok()) << refused.status.to_string();
        // In one batch, or one before the other.
        progress_until_ready(world, future);
      }
      ASSERT_EQ(told.wait_for(kLong), std::future_status::ready);
      ASSERT_TRUE(outcome_of(std::move(future)).ok());
    }
  });
}

TEST(WorldProgress, AbandonEndsTheWaitHereAndTheOthersLearnOfIt) {
  std::latch all_are_here(2);
  run_world(2, [&all_are_here](int rank, World& world) {
    all_are_here.arrive_and_wait();
    std::vector<float> data(16);
    if (rank == 1) {
      const Failure outcome = allreduce_with_progress(world, "only rank 1's", data);
      EXPECT_TRUE(mentions(outcome, "rank 0")) << outcome.status.to_string();
      EXPECT_TRUE(mentions(outcome, "without shutdown()")) << outcome.status.to_string();
      return;
    }
    std::thread waits(
        [&] { EXPECT_FALSE(allreduce_with_progress(world, "only rank 0's", data).ok()); });
    world.abandon();
    waits.join();
  });
}

TEST(WorldProgress, PostedTasksRunOnAnotherThread) {
  run_world_to_end(1, [](int /*rank*/, World& world) {
    std::promise<std::thread::id> where;
    world.post([&where] { where.set_value(std::this_thread::get_id()); });
    EXPECT_NE(where.get_future().get(), std::this_thread::get_id());
  });
}

TEST(WorldProgress, ADrivingCallerLearnsThatARankIsGone) {
  std::latch all_are_here(3);
  run_world(3, [&all_are_here](int rank, World& world) {
    all_are_here.arrive_and_wait();
    if (rank == 2) return;
    std::vector<float> data(16);
    const Failure outcome = allreduce_with_progress(world, "nobody's", data);
    EXPECT_TRUE(mentions(outcome, "rank 2")) << outcome.status.to_string();
  });
}

// Operations follow each other, and none of them has to wait.
TEST(WorldProgress, ACallerThatIsAlwaysBusyStillGetsEvents) {
  constexpr int kOperations = 20'000;
  const auto interrupt = std::make_shared<runtime::Interrupt>();
  run_world(
      1,
      [&](int /*rank*/, World& world) {
        std::atomic<int> ran = 0;
        std::atomic<int> ended = 0;
        std::vector<runtime::Entry> entries;
        for (int i = 0; i < kOperations; ++i) {
          runtime::Request request;
          request.name = cat("barrier ", i);
          request.kind = runtime::Kind::barrier;
          runtime::Entry entry{std::move(request), nullptr, nullptr,
                               [&](const runtime::Outcome& outcome) {
                                 if (outcome.ok() && ++ran == 100) {
                                   interrupt->raise(Status(Code::aborted, "enough"));
                                 }
                                 ++ended;
                               }};
          entry.done_wakes_only = true;
          entries.push_back(std::move(entry));
        }
        const auto refused = world.enqueue(std::move(entries));
        ASSERT_TRUE(refused.ok()) << refused.status.to_string();
        world.progress_until([&] { return ended.load() == kOperations; });
        EXPECT_GE(ran, 100);
        EXPECT_LT(ran.load(), kOperations);
        EXPECT_TRUE(mentions(world.failure(), "enough"));
      },
      [&interrupt](runtime::WorldSpec& spec) { spec.interrupt = interrupt; });
}

TEST(WorldProgress, ShutdownIsNotHeldUpByADrivingCaller) {
  std::latch is_over(2);
  run_world(2, [&is_over](int rank, World& world) {
    if (rank == 1) return is_over.arrive_and_wait();
    std::promise<void> returned;
    auto is_back = returned.get_future();
    std::vector<float> data(16);
    auto never = allreduce(world, "only rank 0's", data);
    std::thread waits([&] {
      world.progress_until([] { return false; });
      returned.set_value();
    });
    const Failure left = world.shutdown(Clock::now() + std::chrono::milliseconds(100));
    EXPECT_EQ(left.status.code(), Code::deadline_exceeded) << left.status.to_string();
    EXPECT_EQ(is_back.wait_for(kLong), std::future_status::ready);
    waits.join();
    world.abort(Status(Code::aborted, "the test is over"));
    EXPECT_FALSE(outcome_of(std::move(never)).ok());
    is_over.count_down();
  });
}

TEST(WorldProgress, ProgressUntilReturnsAtOnceWithinACallback) {
  run_world_to_end(2, [](int /*rank*/, World& world) {
    std::vector<float> data(16);
    std::promise<void> called;
    auto told = called.get_future();
    const auto refused = world.enqueue({allreduce_request("with a callback", 16), data.data(),
                                        data.data(), [&](const runtime::Outcome& /*outcome*/) {
                                          world.progress_until([] { return false; });
                                          called.set_value();
                                        }});
    ASSERT_TRUE(refused.ok()) << refused.status.to_string();
    progress_until_ready(world, told);
    EXPECT_EQ(told.wait_for(kLong), std::future_status::ready);
  });
}

}  // namespace
}  // namespace hvd::test
