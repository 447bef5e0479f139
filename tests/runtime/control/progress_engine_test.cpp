#include "runtime/control/progress_engine.h"

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

using runtime::Poller;
using runtime::ProgressEngine;
using runtime::ShmLayout;
using runtime::ShmMailbox;

UniqueFd make_event() { return UniqueFd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)); }

void ring(int fd) {
  const std::uint64_t once = 1;
  ASSERT_EQ(::write(fd, &once, sizeof(once)), static_cast<ssize_t>(sizeof(once)));
}

// An engine with a progress thread that records its events.
class EngineWithThread {
 public:
  EngineWithThread() {
    EXPECT_TRUE(poller.open().ok());
    EXPECT_TRUE(engine.open().ok());
    thread_ = std::thread([this] {
      auto lock = engine.lock();
      while (!stopping_) {
        for (const auto& event : engine.wait_in_thread(lock, kNever)) heard_.push_back(event.fd);
        ++looked_;
        looked_.notify_all();
      }
    });
    poller.wake();
    looked_.wait(0);
  }
  ~EngineWithThread() {
    stopping_ = true;
    poller.wake();
    thread_.join();
  }
  EngineWithThread(const EngineWithThread&) = delete;
  EngineWithThread& operator=(const EngineWithThread&) = delete;

  // Under the engine's lock.
  const std::vector<int>& heard() const { return heard_; }
  int looked() const { return looked_; }
  void wait_for_look_after(int before) const { looked_.wait(before); }

  Poller poller;
  ProgressEngine engine{poller, false};

 private:
  std::atomic<bool> stopping_ = false;
  std::atomic<int> looked_ = 0;
  std::vector<int> heard_;
  std::thread thread_;
};

TEST(ProgressEngine, TheThreadGetsEventsWhileNoCallerDrives) {
  EngineWithThread running;
  const UniqueFd event = make_event();
  running.poller.watch_edge_triggered(event.get());
  const int before = running.looked();
  ring(event.get());
  running.wait_for_look_after(before);
  const auto lock = running.engine.lock();
  EXPECT_EQ(running.heard(), std::vector<int>{event.get()});
}

TEST(ProgressEngine, ADrivingCallerAloneGetsEvents) {
  EngineWithThread running;
  const UniqueFd event = make_event();
  ASSERT_TRUE(running.engine.claim());
  EXPECT_FALSE(running.engine.claim()) << "one caller at a time";
  auto lock = running.engine.lock();
  running.engine.begin(lock);
  running.poller.watch_edge_triggered(event.get());
  for (int i = 0; i < 100; ++i) {
    ring(event.get());
    const auto events = running.engine.wait_in_caller(lock, kNever);
    ASSERT_EQ(events.size(), 1U);
    EXPECT_EQ(events.front().fd, event.get());
  }
  EXPECT_TRUE(running.heard().empty());
  running.engine.release(lock, kNever);
  EXPECT_TRUE(running.engine.claim());
}

TEST(ProgressEngine, EventsThatTheCallerLeavesGoToTheThread) {
  EngineWithThread running;
  const UniqueFd event = make_event();
  ASSERT_TRUE(running.engine.claim());
  {
    auto lock = running.engine.lock();
    running.engine.begin(lock);
    running.poller.watch_edge_triggered(event.get());
    ring(event.get());
    running.engine.release(lock, kNever);
  }
  for (;;) {
    const int before = running.looked();
    {
      const auto lock = running.engine.lock();
      if (!running.heard().empty()) break;
    }
    running.wait_for_look_after(before);
  }
}

TEST(ProgressEngine, TheThreadTakesOverTheTimer) {
  EngineWithThread running;
  ASSERT_TRUE(running.engine.claim());
  const int before = running.looked();
  {
    auto lock = running.engine.lock();
    running.engine.begin(lock);
    running.engine.release(lock, Clock::now());
  }
  running.wait_for_look_after(before);
}

TEST(ProgressEngine, ANotifiedCallerStopsWaiting) {
  EngineWithThread running;
  ASSERT_TRUE(running.engine.claim());
  auto lock = running.engine.lock();
  running.engine.begin(lock);
  auto told = std::async(std::launch::async, [&running] { running.engine.notify_caller(); });
  EXPECT_TRUE(running.engine.wait_in_caller(lock, kNever).empty());
  told.get();
  running.engine.release(lock, kNever);
}

// A progress thread that polls all the time, also while a caller drives.
TEST(ProgressEngine, AThreadThatPollsMeanwhileTakesNothingFromTheCaller) {
  Poller poller;
  ProgressEngine engine(poller, false);
  ASSERT_TRUE(poller.open().ok());
  ASSERT_TRUE(engine.open().ok());
  std::atomic<bool> stopping = false;
  std::thread progress_thread([&] {
    auto lock = engine.lock();
    while (!stopping) engine.wait_in_thread(lock, Clock::now());
  });
  ASSERT_TRUE(engine.claim());
  for (int i = 0; i < 500; ++i) {
    auto lock = engine.lock();
    engine.begin(lock);
    auto told = std::async(std::launch::async, [&engine] { engine.notify_caller(); });
    EXPECT_TRUE(engine.wait_in_caller(lock, kNever).empty());
    lock.unlock();
    told.get();
    lock.lock();
    engine.suspend(lock, kNever);
  }
  stopping = true;
  progress_thread.join();
}

TEST(ProgressEngine, ABriefPollSeesEvents) {
  EngineWithThread running;
  const UniqueFd event = make_event();
  ASSERT_TRUE(running.engine.claim());
  auto lock = running.engine.lock();
  running.engine.begin(lock);
  std::vector<Poller::Event> events;
  while (running.engine.poll_briefly(lock, events)) {  // wake-ups from before
  }
  EXPECT_TRUE(events.empty());
  running.poller.watch_edge_triggered(event.get());
  ring(event.get());
  EXPECT_TRUE(running.engine.poll_briefly(lock, events));
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events.front().fd, event.get());
  running.engine.release(lock, kNever);
}

TEST(ProgressEngine, AnOccasionalPollSeesEvents) {
  EngineWithThread running;
  const UniqueFd event = make_event();
  ASSERT_TRUE(running.engine.claim());
  auto lock = running.engine.lock();
  running.engine.begin(lock);
  running.poller.watch_edge_triggered(event.get());
  for (int i = 0; i < 10; ++i) {
    ring(event.get());
    const auto deadline = Clock::now() + kLong;
    std::vector<Poller::Event> events;
    while (events.empty()) {
      ASSERT_LT(Clock::now(), deadline);
      events = running.engine.poll_sometimes(lock);
    }
    ASSERT_EQ(events.size(), 1U);
    EXPECT_EQ(events.front().fd, event.get());
  }
  running.engine.release(lock, kNever);
}

// With a second rank that writes to the mailbox.
class ProgressEngineWithMailbox : public testing::Test {
 protected:
  ProgressEngineWithMailbox() {
    const auto memory = ShmLayout::create(2, 4096);
    EXPECT_TRUE(memory.ok()) << memory.status().to_string();
    for (std::size_t self = 0; self < 2; ++self) {
      mailbox_.push_back(
          std::make_shared<ShmMailbox>(adopted(*memory, 2), std::vector<int>{0, 1}, self));
    }
    EXPECT_TRUE(running_.engine.claim());
  }
  ShmMailbox::SendResult send() { return mailbox_[1]->send(0, 0, "a message", false); }
  bool has_new() { return mailbox_[0]->has_new(); }
  void read() {
    mailbox_[0]->note_new();
    while (mailbox_[0]->look(1)) mailbox_[0]->take(1);
  }
  // Skips the wake-ups of the engine's creation and of the first use of the mailbox.
  ProgressEngine::Lock driving() {
    auto lock = running_.engine.lock();
    running_.engine.use_mailbox(mailbox_[0]);
    running_.engine.begin(lock);
    std::vector<Poller::Event> events;
    while (running_.engine.poll_briefly(lock, events)) {
    }
    return lock;
  }

  EngineWithThread running_;
  std::vector<std::shared_ptr<ShmMailbox>> mailbox_;
};

TEST_F(ProgressEngineWithMailbox, ABriefPollSeesMessages) {
  auto lock = driving();
  EXPECT_EQ(send(), ShmMailbox::SendResult::seen);
  std::vector<Poller::Event> events;
  EXPECT_TRUE(running_.engine.poll_briefly(lock, events));
  EXPECT_TRUE(events.empty());
  read();
  EXPECT_FALSE(running_.engine.poll_briefly(lock, events));
  running_.engine.release(lock, kNever);
}

TEST_F(ProgressEngineWithMailbox, MessagesDoNotHideEvents) {
  auto lock = driving();
  const UniqueFd event = make_event();
  running_.poller.watch_edge_triggered(event.get());
  EXPECT_EQ(send(), ShmMailbox::SendResult::seen);
  ring(event.get());
  std::vector<Poller::Event> events;
  EXPECT_TRUE(running_.engine.poll_briefly(lock, events));
  ASSERT_EQ(events.size(), 1U);
  running_.engine.release(lock, kNever);
}

TEST_F(ProgressEngineWithMailbox, ACallerWithUnreadMessagesDoesNotSleep) {
  auto lock = driving();
  EXPECT_EQ(send(), ShmMailbox::SendResult::seen);
  EXPECT_TRUE(running_.engine.wait_in_caller(lock, kNever).empty());
  EXPECT_TRUE(has_new());
  EXPECT_EQ(send(), ShmMailbox::SendResult::seen) << "it looks again";
  running_.engine.release(lock, kNever);
}

TEST_F(ProgressEngineWithMailbox, NoMessageIsLeftForASleepingCaller) {
  auto lock = driving();
  auto left = std::async(std::launch::async, [this] {
    // The caller gives up the lock when it is about to sleep.
    const auto meanwhile = running_.engine.lock();
    const auto how = send();
    running_.engine.notify_caller();
    return how;
  });
  running_.engine.wait_in_caller(lock, kNever);
  EXPECT_EQ(left.get(), ShmMailbox::SendResult::no);
  running_.engine.release(lock, kNever);
}

TEST_F(ProgressEngineWithMailbox, TheThreadIsWokenForMessagesThatTheCallerLeaves) {
  for (const bool for_good : {false, true}) {
    auto lock = driving();
    EXPECT_EQ(send(), ShmMailbox::SendResult::seen);
    const int before = running_.looked();
    if (for_good) {
      running_.engine.release(lock, kNever);
    } else {
      running_.engine.suspend(lock, kNever);
    }
    lock.unlock();
    running_.wait_for_look_after(before);
    EXPECT_TRUE(has_new());
    read();
  }
}

TEST_F(ProgressEngineWithMailbox, SuspendingTwiceIsTheSameAsOnce) {
  auto lock = driving();
  running_.engine.suspend(lock, kNever);
  running_.engine.suspend(lock, kNever);
  EXPECT_EQ(send(), ShmMailbox::SendResult::no);
  running_.engine.begin(lock);
  EXPECT_EQ(send(), ShmMailbox::SendResult::seen);
  running_.engine.release(lock, kNever);
}

TEST_F(ProgressEngineWithMailbox, ASleepingCallerPollsTheMailboxFromItsFirstUseOn) {
  auto lock = running_.engine.lock();
  running_.engine.begin(lock);
  auto watched = std::async(std::launch::async, [this] {
    const auto meanwhile = running_.engine.lock();
    running_.engine.use_mailbox(mailbox_[0]);
    return send();
  });
  while (!has_new()) running_.engine.wait_in_caller(lock, kNever);
  EXPECT_EQ(watched.get(), ShmMailbox::SendResult::seen);
  running_.engine.release(lock, kNever);
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
