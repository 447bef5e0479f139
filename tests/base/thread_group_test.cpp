#include <atomic>
#include <csignal>
#include <future>
#include <gtest/gtest.h>
#include <memory>
#include <pthread.h>
#include <thread>
#include <utility>

#include "base/threads.h"

namespace hvd {
namespace {

// Holds threads until it is opened.
class Barrier {
 public:
  void open() { promise_.set_value(); }
  auto waiter() {
    return [open = open_] { open.wait(); };
  }

 private:
  std::promise<void> promise_;
  std::shared_future<void> open_ = promise_.get_future().share();
};

TEST(ThreadGroup, JoinWaitsForEveryThread) {
  ThreadGroup group;
  std::atomic<int> done = 0;
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(group.start([&done] { ++done; }).ok());
  group.join();
  EXPECT_EQ(done, 8);
  EXPECT_EQ(group.running(), 0U);
}

TEST(ThreadGroup, RefusesThreadsOnceItIsClosed) {
  ThreadGroup group;
  Barrier barrier;
  ASSERT_TRUE(group.start(barrier.waiter()).ok());
  group.close();
  EXPECT_EQ(group.start([] {}).code(), Code::aborted);
  EXPECT_EQ(group.running(), 1U);
  barrier.open();
  group.join();
  EXPECT_EQ(group.start([] {}).code(), Code::aborted);
}

TEST(ThreadGroup, DestroysTheWorkBeforeTheJoinReturns) {
  ThreadGroup group;
  auto captured = std::make_shared<int>(1);
  const std::weak_ptr<int> alive = captured;
  ASSERT_TRUE(group.start([kept = std::move(captured)] { EXPECT_EQ(*kept, 1); }).ok());
  group.join();
  EXPECT_TRUE(alive.expired());
}

TEST(ThreadGroup, StartsThreadsWithAllSignalsBlocked) {
  ThreadGroup group;
  bool blocked = false;
  ASSERT_TRUE(group
                  .start([&blocked] {
                    sigset_t mask;
                    ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
                    blocked = sigismember(&mask, SIGTERM) == 1;
                  })
                  .ok());
  group.join();
  EXPECT_TRUE(blocked);
}

TEST(ThreadGroup, LeavesBehindThreadsThatDoNotEndInTime) {
  Barrier barrier;
  std::promise<void> ended;
  {
    ThreadGroup group;
    ASSERT_TRUE(group
                    .start([wait = barrier.waiter(), &ended] {
                      wait();
                      ended.set_value();
                    })
                    .ok());
    ASSERT_TRUE(group.start([] {}).ok());
    while (group.running() > 1) std::this_thread::yield();
    EXPECT_EQ(group.join_until(Clock::now()), 1U);
    EXPECT_EQ(group.running(), 0U);
  }
  barrier.open();
  ended.get_future().wait();
}

TEST(ThreadGroup, JoinsThreadsOfEarlierTimesWhenOneStarts) {
  ThreadGroup group;
  for (int i = 0; i < 1'000; ++i) {
    ASSERT_TRUE(group.start([] {}).ok());
    while (group.running() > 0) std::this_thread::yield();
  }
  group.join();
}

TEST(ThreadGroupDeathTest, EndsTheProcessIfDestroyedWhileAThreadRuns) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        Barrier barrier;
        ThreadGroup group;
        static_cast<void>(group.start(barrier.waiter()));
      },
      "destroyed while 1 of its threads run");
}

}  // namespace
}  // namespace hvd
