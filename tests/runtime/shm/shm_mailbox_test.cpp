// Messages in the shared-memory mailboxes of one host, which wake no rank: which receivers accept
// them, how a receiver learns of them, and that none is missed.
#include "runtime/shm/shm_mailbox.h"

#include <array>
#include <gtest/gtest.h>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "base/text.h"
#include "runtime/net/poller.h"
#include "tests/runtime/ops/gloo_ranks.h"

namespace hvd::test {
namespace {

using runtime::Poller;
using runtime::ShmLayout;
using runtime::ShmMailbox;
using runtime::SpscRing;
using SendResult = runtime::ShmMailbox::SendResult;

// The mailboxes of one host, one for each of `ranks`.
std::vector<std::unique_ptr<ShmMailbox>> mailboxes_of(const std::vector<int>& ranks) {
  const auto count = static_cast<int>(ranks.size());
  const auto memory = ShmLayout::create(count, 4096);
  EXPECT_TRUE(memory.ok()) << memory.status().to_string();
  std::vector<std::unique_ptr<ShmMailbox>> mailbox;
  for (std::size_t self = 0; self < ranks.size(); ++self) {
    mailbox.push_back(std::make_unique<ShmMailbox>(adopted(*memory, count), ranks, self));
  }
  return mailbox;
}

class ShmMailboxPair : public testing::Test {
 protected:
  std::vector<std::unique_ptr<ShmMailbox>> mailbox_ = mailboxes_of({3, 7});
  ShmMailbox& writer_ = *mailbox_[0];
  ShmMailbox& reader_ = *mailbox_[1];

  std::string read() {
    const auto message = reader_.look(3);
    if (!message) return "none";
    std::string bytes(message->bytes);
    reader_.take(3);
    return bytes;
  }
  // Sends to a receiver that has just stopped polling, again until the scheduler lets it arrive in
  // time.
  void send_after_polling_stopped(const std::string& bytes) {
    const auto deadline = Clock::now() + kLong;
    do {
      ASSERT_LT(Clock::now(), deadline);
      reader_.start_polling();
      reader_.stop_polling(true);
    } while (writer_.send(7, 0, bytes, true) != SendResult::unseen);
  }
};

TEST_F(ShmMailboxPair, AMessageForAReceiverThatDoesNotPollIsNotAccepted) {
  EXPECT_EQ(writer_.send(7, 0, "one", false), SendResult::no);
  EXPECT_EQ(writer_.send(7, 0, "one", true), SendResult::no);
  EXPECT_FALSE(reader_.has_new());
  EXPECT_EQ(read(), "none");
}

TEST_F(ShmMailboxPair, APollingReceiverGetsMessagesInOrder) {
  reader_.start_polling();
  EXPECT_EQ(writer_.send(7, 12, "one", false), SendResult::seen);
  EXPECT_EQ(writer_.send(7, 12, "two", true), SendResult::seen);
  EXPECT_FALSE(writer_.is_unseen(7)) << "the receiver polls for it";
  EXPECT_TRUE(reader_.has_new());
  reader_.note_new();
  EXPECT_FALSE(reader_.has_new());
  EXPECT_EQ(reader_.look(3)->after, 12U);
  EXPECT_EQ(read(), "one");
  EXPECT_EQ(read(), "two");
  EXPECT_EQ(read(), "none");
  EXPECT_FALSE(reader_.stop_polling(false));
}

TEST_F(ShmMailboxPair, AReceiverThatStopsPollingIsToldOfUnreadMessages) {
  for (const bool is_back_soon : {false, true}) {
    reader_.start_polling();
    EXPECT_EQ(writer_.send(7, 0, "one", false), SendResult::seen);
    EXPECT_TRUE(reader_.stop_polling(is_back_soon));
    EXPECT_TRUE(writer_.is_unseen(7));
    reader_.note_new();
    EXPECT_EQ(read(), "one");
    EXPECT_FALSE(writer_.is_unseen(7));
  }
}

TEST_F(ShmMailboxPair, AReceiverThatStoppedJustNowAcceptsMessagesThatMayWait) {
  send_after_polling_stopped("one");
  EXPECT_TRUE(writer_.is_unseen(7));
  EXPECT_EQ(writer_.send(7, 0, "two", false), SendResult::no) << "this may not wait";
  reader_.start_polling();
  EXPECT_FALSE(writer_.is_unseen(7));
  EXPECT_TRUE(reader_.stop_polling(false)) << "there is one";
  reader_.note_new();
  EXPECT_EQ(read(), "one");
  EXPECT_EQ(read(), "none");
}

TEST_F(ShmMailboxPair, AReceiverThatStopsForLongerAcceptsNoMessage) {
  reader_.start_polling();
  EXPECT_FALSE(reader_.stop_polling(false));
  EXPECT_EQ(writer_.send(7, 0, "one", true), SendResult::no);
}

TEST_F(ShmMailboxPair, AReceiverThatIsNotBackInTimeAcceptsNoMoreMessages) {
  send_after_polling_stopped("one");
  EXPECT_EQ(read(), "one");
  const auto deadline = Clock::now() + kLong;
  while (writer_.send(7, 0, "more", true) != SendResult::no) {
    ASSERT_LT(Clock::now(), deadline);
    EXPECT_EQ(read(), "more");
  }
}

TEST_F(ShmMailboxPair, AMessageThatDoesNotFitIsNotAccepted) {
  reader_.start_polling();
  EXPECT_EQ(writer_.send(7, 0, std::string(SpscRing::kMaxBytes + 1, 'x'), false), SendResult::no);
  EXPECT_FALSE(reader_.has_new());
  for (std::size_t i = 0; i < SpscRing::kSlots; ++i) {
    EXPECT_EQ(writer_.send(7, 0, "one", false), SendResult::seen);
  }
  EXPECT_EQ(writer_.send(7, 0, "one", false), SendResult::no);
  EXPECT_EQ(read(), "one");
  EXPECT_EQ(writer_.send(7, 0, "one", false), SendResult::seen);
}

TEST_F(ShmMailboxPair, ARankOfAnotherHostHasNoMailbox) {
  EXPECT_EQ(writer_.send(5, 0, "one", true), SendResult::no);
  EXPECT_FALSE(writer_.is_unseen(5));
  EXPECT_FALSE(writer_.look(5).has_value());
}

TEST(ShmMailbox, NeighboursInATreeDoNotGetEachOthersMessages) {
  const auto mailbox = mailboxes_of({0, 1, 2, 3, 4, 5});
  for (const auto& one : mailbox) one->start_polling();
  const auto send = [&mailbox](int from, int to) {
    const auto left =
        mailbox[static_cast<std::size_t>(from)]->send(to, 0, cat(from, " to ", to), false);
    EXPECT_EQ(left, SendResult::seen);
  };
  const auto expect = [&mailbox](int from, int to) {
    auto& reader = *mailbox[static_cast<std::size_t>(to)];
    EXPECT_TRUE(reader.has_new());
    const auto message = reader.look(from);
    ASSERT_TRUE(message.has_value());
    EXPECT_EQ(message->bytes, cat(from, " to ", to));
    reader.take(from);
    EXPECT_FALSE(reader.look(from).has_value());
  };
  const std::vector<std::pair<int, int>> links{{0, 1}, {0, 2}, {0, 3}, {0, 4}, {1, 5}};
  for (const auto& [parent, child] : links) {
    send(parent, child);
    send(child, parent);
  }
  for (const auto& [parent, child] : links) {
    expect(parent, child);
    expect(child, parent);
  }
}

// One end of a game in which the other end must not miss a move: a message tells it of the next
// move, or else the descriptor that it sleeps on.
class Player {
 public:
  Player(ShmMailbox& mailbox, int other, unsigned seed)
      : mailbox_(mailbox), other_(other), random_(seed) {
    EXPECT_TRUE(poller_.open().ok());
  }

  void play(Player& other, bool begins, std::uint64_t moves) {
    if (begins) move(other, 0);
    for (std::uint64_t next = begins ? 1 : 0; next < moves; next += 2) {
      if (!await(other, next, Clock::now() + kLong)) return;
      move(other, next + 1);
    }
    announce(other);
  }
  std::uint64_t messages() const { return messages_; }

 private:
  bool once_in(unsigned times) { return random_() % times == 0; }

  void move(Player& other, std::uint64_t number) {
    if (once_in(50)) announce(other);
    const bool may_wait = !once_in(3);
    const std::string bytes = cat(number);
    switch (mailbox_.send(other_, 0, bytes, may_wait)) {
      case SendResult::no:
        other.said_ = number + 1;
        other.poller_.wake();
        break;
      case SendResult::seen:
        ++messages_;
        break;
      case SendResult::unseen:
        ++messages_;
        if (may_wait) {
          unseen_ = true;
        } else {
          other.poller_.wake();
        }
        break;
    }
  }
  void announce(Player& other) {
    if (std::exchange(unseen_, false) && mailbox_.is_unseen(other_)) other.poller_.wake();
  }

  bool has_come(std::uint64_t number) {
    if (said_ == number + 1) return true;
    if (!mailbox_.has_new()) return false;
    mailbox_.note_new();
    const auto message = mailbox_.look(other_);
    if (!message) return false;
    EXPECT_EQ(message->bytes, cat(number));
    mailbox_.take(other_);
    return true;
  }

  // Polls for a while, then sleeps, for a moment or for longer.
  bool await(Player& other, std::uint64_t number, TimePoint deadline) {
    for (;;) {
      mailbox_.start_polling();
      for (auto looks = random_() % 20; looks > 0; --looks) {
        if (has_come(number)) return true;
        if (once_in(4)) std::this_thread::yield();
      }
      announce(other);
      if (mailbox_.stop_polling(once_in(2))) continue;
      if (Clock::now() >= deadline) {
        ADD_FAILURE() << "move " << number << " was missed";
        return false;
      }
      poller_.wait(deadline);
      if (has_come(number)) return true;
    }
  }

  ShmMailbox& mailbox_;
  int other_;
  std::mt19937 random_;
  Poller poller_;
  std::atomic<std::uint64_t> said_ = 0;  // the last move that was no message, + 1
  bool unseen_ = false;
  std::uint64_t messages_ = 0;
};

TEST(ShmMailbox, NoMessageIsMissedWhicheverEndSleeps) {
  constexpr std::uint64_t kMoves = 10'000;
  const auto mailbox = mailboxes_of({0, 1});
  Player first(*mailbox[0], 1, 1);
  Player second(*mailbox[1], 0, 2);
  std::thread plays([&] { second.play(first, false, kMoves); });
  first.play(second, true, kMoves);
  plays.join();
  EXPECT_GT(first.messages(), 0U);
  EXPECT_GT(second.messages(), 0U);
}

}  // namespace
}  // namespace hvd::test
