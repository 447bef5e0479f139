#include "runtime/control/duty.h"

#include <atomic>
#include <future>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>

#include "tests/runtime/ops/gloo_ranks.h"
#include "tests/runtime/ranks.h"

namespace hvd::test {
namespace {

using runtime::Duty;
using runtime::HostMail;
using runtime::HostMemory;
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

TEST(Duty, WhoLooksBrieflySeesWhatHasHappened) {
  Keeper keeper;
  const UniqueFd event = make_event();
  ASSERT_TRUE(keeper.duty.come());
  auto turn = keeper.duty.take_turn();
  keeper.duty.step_in(turn);
  std::vector<Poller::Event> events;
  while (keeper.duty.look_briefly(turn, events)) {  // what has woken the keeper first
  }
  EXPECT_TRUE(events.empty());
  keeper.poller.watch_news(event.get());
  ring(event.get());
  EXPECT_TRUE(keeper.duty.look_briefly(turn, events));
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events.front().fd, event.get());
  keeper.duty.leave(turn, kNever);
}

TEST(Duty, WhoGlancesNowAndThenSeesWhatHasHappened) {
  Keeper keeper;
  const UniqueFd event = make_event();
  ASSERT_TRUE(keeper.duty.come());
  auto turn = keeper.duty.take_turn();
  keeper.duty.step_in(turn);
  keeper.poller.watch_news(event.get());
  for (int i = 0; i < 10; ++i) {
    ring(event.get());
    const auto deadline = Clock::now() + kLong;
    std::vector<Poller::Event> events;
    while (events.empty()) {
      ASSERT_LT(Clock::now(), deadline);
      events = keeper.duty.glance(turn);
    }
    ASSERT_EQ(events.size(), 1U);
    EXPECT_EQ(events.front().fd, event.get());
  }
  keeper.duty.leave(turn, kNever);
}

// With another rank, which writes.
class DutyWithLetters : public testing::Test {
 protected:
  DutyWithLetters() {
    const auto memory = HostMemory::create(2, 4096);
    EXPECT_TRUE(memory.ok()) << memory.status().to_string();
    for (std::size_t self = 0; self < 2; ++self) {
      mail_.push_back(
          std::make_shared<HostMail>(adopted(*memory, 2), std::vector<int>{0, 1}, self));
    }
    EXPECT_TRUE(keeper_.duty.come());
  }
  HostMail::Left leave() { return mail_[1]->leave(0, 0, "a letter", false); }
  bool has_news() { return mail_[0]->has_news(); }
  void read() {
    mail_[0]->note_news();
    while (mail_[0]->look(1)) mail_[0]->take(1);
  }
  // What wakes it when it is made, or when letters come into play, has been seen.
  Duty::Turn helping() {
    auto turn = keeper_.duty.take_turn();
    keeper_.duty.watch_letters(mail_[0]);
    keeper_.duty.step_in(turn);
    std::vector<Poller::Event> events;
    while (keeper_.duty.look_briefly(turn, events)) {
    }
    return turn;
  }

  Keeper keeper_;
  std::vector<std::shared_ptr<HostMail>> mail_;
};

TEST_F(DutyWithLetters, WhoLooksBrieflySeesThem) {
  auto turn = helping();
  EXPECT_EQ(leave(), HostMail::Left::seen);
  std::vector<Poller::Event> events;
  EXPECT_TRUE(keeper_.duty.look_briefly(turn, events));
  EXPECT_TRUE(events.empty());
  read();
  EXPECT_FALSE(keeper_.duty.look_briefly(turn, events));
  keeper_.duty.leave(turn, kNever);
}

TEST_F(DutyWithLetters, TheyKeepNobodyFromSeeingAllElse) {
  auto turn = helping();
  const UniqueFd event = make_event();
  keeper_.poller.watch_news(event.get());
  EXPECT_EQ(leave(), HostMail::Left::seen);
  ring(event.get());
  std::vector<Poller::Event> events;
  EXPECT_TRUE(keeper_.duty.look_briefly(turn, events));
  ASSERT_EQ(events.size(), 1U);
  keeper_.duty.leave(turn, kNever);
}

TEST_F(DutyWithLetters, AHelperThatHasNotReadThemDoesNotFallAsleep) {
  auto turn = helping();
  EXPECT_EQ(leave(), HostMail::Left::seen);
  EXPECT_TRUE(keeper_.duty.help(turn, kNever).empty());
  EXPECT_TRUE(has_news());
  EXPECT_EQ(leave(), HostMail::Left::seen) << "it looks again";
  keeper_.duty.leave(turn, kNever);
}

TEST_F(DutyWithLetters, NoneIsLeftToAHelperThatSleeps) {
  auto turn = helping();
  auto left = std::async(std::launch::async, [this] {
    // The helper gives the turn away when it is about to sleep.
    const auto meanwhile = keeper_.duty.take_turn();
    const auto how = leave();
    keeper_.duty.tell_helper();
    return how;
  });
  keeper_.duty.help(turn, kNever);
  EXPECT_EQ(left.get(), HostMail::Left::no);
  keeper_.duty.leave(turn, kNever);
}

TEST_F(DutyWithLetters, TheKeeperIsWokenForThoseThatTheHelperLeaves) {
  for (const bool for_good : {false, true}) {
    auto turn = helping();
    EXPECT_EQ(leave(), HostMail::Left::seen);
    const int before = keeper_.looked();
    if (for_good) {
      keeper_.duty.leave(turn, kNever);
    } else {
      keeper_.duty.step_aside(turn, kNever);
    }
    turn.unlock();
    keeper_.wait_for_look_after(before);
    EXPECT_TRUE(has_news());
    read();
  }
}

TEST_F(DutyWithLetters, AHelperThatStepsAsideAgainStaysThere) {
  auto turn = helping();
  keeper_.duty.step_aside(turn, kNever);
  keeper_.duty.step_aside(turn, kNever);
  EXPECT_EQ(leave(), HostMail::Left::no);
  keeper_.duty.step_in(turn);
  EXPECT_EQ(leave(), HostMail::Left::seen);
  keeper_.duty.leave(turn, kNever);
}

TEST_F(DutyWithLetters, AHelperThatSleepsLooksForThemAsSoonAsThereMayBeSome) {
  auto turn = keeper_.duty.take_turn();
  keeper_.duty.step_in(turn);
  auto watched = std::async(std::launch::async, [this] {
    const auto meanwhile = keeper_.duty.take_turn();
    keeper_.duty.watch_letters(mail_[0]);
    return leave();
  });
  while (!has_news()) keeper_.duty.help(turn, kNever);
  EXPECT_EQ(watched.get(), HostMail::Left::seen);
  keeper_.duty.leave(turn, kNever);
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
