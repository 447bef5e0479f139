#include "runtime/duty.h"

#include <atomic>
#include <future>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>

#include "tests/runtime/ranks.h"

namespace hvd::test {
namespace {

using runtime::Duty;
using runtime::Poller;

UniqueFd make_event() { return UniqueFd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)); }

void ring(int fd) {
  const std::uint64_t once = 1;
  ASSERT_EQ(::write(fd, &once, sizeof(once)), static_cast<ssize_t>(sizeof(once)));
}

// A keeper that hands on what it hears.
class Keeper {
 public:
  Keeper() {
    EXPECT_TRUE(poller.open().ok());
    EXPECT_TRUE(duty.open().ok());
    thread_ = std::thread([this] {
      auto turn = duty.take_turn();
      while (!stopping_) {
        for (const auto& event : duty.keep(turn, kNever)) heard_.push_back(event.fd);
        ++looked_;
        looked_.notify_all();
      }
    });
    poller.wake();
    looked_.wait(0);
  }
  ~Keeper() {
    stopping_ = true;
    poller.wake();
    thread_.join();
  }
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  // Within a turn.
  const std::vector<int>& heard() const { return heard_; }
  int looked() const { return looked_; }
  void wait_for_look_after(int before) const { looked_.wait(before); }

  Poller poller;
  Duty duty{poller, false};

 private:
  std::atomic<bool> stopping_ = false;
  std::atomic<int> looked_ = 0;
  std::vector<int> heard_;
  std::thread thread_;
};

TEST(Duty, TheKeeperHearsWhatHappensWhileNobodyHelps) {
  Keeper keeper;
  const UniqueFd event = make_event();
  keeper.poller.watch_news(event.get());
  const int before = keeper.looked();
  ring(event.get());
  keeper.wait_for_look_after(before);
  const auto turn = keeper.duty.take_turn();
  EXPECT_EQ(keeper.heard(), std::vector<int>{event.get()});
}

TEST(Duty, WhatHappensWhileSomebodyHelpsComesToTheHelperAlone) {
  Keeper keeper;
  const UniqueFd event = make_event();
  ASSERT_TRUE(keeper.duty.come());
  EXPECT_FALSE(keeper.duty.come()) << "one helper at a time";
  auto turn = keeper.duty.take_turn();
  keeper.duty.step_in(turn);
  keeper.poller.watch_news(event.get());
  for (int i = 0; i < 100; ++i) {
    ring(event.get());
    const auto events = keeper.duty.help(turn, kNever);
    ASSERT_EQ(events.size(), 1U);
    EXPECT_EQ(events.front().fd, event.get());
  }
  EXPECT_TRUE(keeper.heard().empty());
  keeper.duty.leave(turn, kNever);
  EXPECT_TRUE(keeper.duty.come());
}

TEST(Duty, WhatTheHelperLeavesUnheardComesToTheKeeper) {
  Keeper keeper;
  const UniqueFd event = make_event();
  ASSERT_TRUE(keeper.duty.come());
  {
    auto turn = keeper.duty.take_turn();
    keeper.duty.step_in(turn);
    keeper.poller.watch_news(event.get());
    ring(event.get());
    keeper.duty.leave(turn, kNever);
  }
  for (;;) {
    const int before = keeper.looked();
    {
      const auto turn = keeper.duty.take_turn();
      if (!keeper.heard().empty()) break;
    }
    keeper.wait_for_look_after(before);
  }
}

TEST(Duty, TheKeeperTakesOverTheTimeAtWhichToLookAgain) {
  Keeper keeper;
  ASSERT_TRUE(keeper.duty.come());
  const int before = keeper.looked();
  {
    auto turn = keeper.duty.take_turn();
    keeper.duty.step_in(turn);
    keeper.duty.leave(turn, Clock::now());
  }
  keeper.wait_for_look_after(before);
}

TEST(Duty, AHelperThatIsToldStopsWaiting) {
  Keeper keeper;
  ASSERT_TRUE(keeper.duty.come());
  auto turn = keeper.duty.take_turn();
  keeper.duty.step_in(turn);
  auto told = std::async(std::launch::async, [&keeper] { keeper.duty.tell_helper(); });
  EXPECT_TRUE(keeper.duty.help(turn, kNever).empty());
  told.get();
  keeper.duty.leave(turn, kNever);
}

// A keeper that looks around all the time, also while somebody helps.
TEST(Duty, AKeeperThatLooksMeanwhileTakesNothingFromTheHelper) {
  Poller poller;
  Duty duty(poller, false);
  ASSERT_TRUE(poller.open().ok());
  ASSERT_TRUE(duty.open().ok());
  std::atomic<bool> stopping = false;
  std::thread keeper([&] {
    auto turn = duty.take_turn();
    while (!stopping) duty.keep(turn, Clock::now());
  });
  ASSERT_TRUE(duty.come());
  for (int i = 0; i < 500; ++i) {
    auto turn = duty.take_turn();
    duty.step_in(turn);
    auto told = std::async(std::launch::async, [&duty] { duty.tell_helper(); });
    EXPECT_TRUE(duty.help(turn, kNever).empty());
    turn.unlock();
    told.get();
    turn.lock();
    duty.step_aside(turn, kNever);
  }
  stopping = true;
  keeper.join();
}

TEST(Poller, WakesWithinATimeHoweverOftenItIsAsked) {
  Poller poller;
  ASSERT_TRUE(poller.open().ok());
  for (int i = 0; i < 20; ++i) {
    poller.wake_within(std::chrono::microseconds(200));
    poller.wake_within(std::chrono::hours(1));
    EXPECT_TRUE(poller.wait(kNever).empty());
  }
  std::vector<Poller::Event> events;
  EXPECT_FALSE(poller.look(events)) << "nothing is left of it";
}

}  // namespace
}  // namespace hvd::test
