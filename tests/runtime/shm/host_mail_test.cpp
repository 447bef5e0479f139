// Letters between ranks of one host that nobody is woken by: to whom they are left, who hears of
// them, and that none is forgotten.
#include "runtime/shm/host_mail.h"

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

using runtime::HostMail;
using runtime::HostMemory;
using runtime::LetterBox;
using runtime::Poller;
using Left = runtime::HostMail::Left;

// What the ranks of one host have, one for each of `ranks`.
std::vector<std::unique_ptr<HostMail>> mail_of(const std::vector<int>& ranks) {
  const auto count = static_cast<int>(ranks.size());
  const auto memory = HostMemory::create(count, 4096);
  EXPECT_TRUE(memory.ok()) << memory.status().to_string();
  std::vector<std::unique_ptr<HostMail>> mail;
  for (std::size_t self = 0; self < ranks.size(); ++self) {
    mail.push_back(std::make_unique<HostMail>(adopted(*memory, count), ranks, self));
  }
  return mail;
}

class HostMailOfTwo : public testing::Test {
 protected:
  std::vector<std::unique_ptr<HostMail>> mail_ = mail_of({3, 7});
  HostMail& writer_ = *mail_[0];
  HostMail& reader_ = *mail_[1];

  std::string read() {
    const auto letter = reader_.look(3);
    if (!letter) return "none";
    std::string bytes(letter->bytes);
    reader_.take(3);
    return bytes;
  }
  // To one who ceased a moment ago, which the scheduler may make a long one.
  void leave_unseen(const std::string& bytes) {
    const auto deadline = Clock::now() + kLong;
    do {
      ASSERT_LT(Clock::now(), deadline);
      reader_.attend();
      reader_.cease(true);
    } while (writer_.leave(7, 0, bytes, true) != Left::unseen);
  }
};

TEST_F(HostMailOfTwo, WhoDoesNotLookGetsNone) {
  EXPECT_EQ(writer_.leave(7, 0, "one", false), Left::no);
  EXPECT_EQ(writer_.leave(7, 0, "one", true), Left::no);
  EXPECT_FALSE(reader_.has_news());
  EXPECT_EQ(read(), "none");
}

TEST_F(HostMailOfTwo, WhoLooksGetsThem) {
  reader_.attend();
  EXPECT_EQ(writer_.leave(7, 12, "one", false), Left::seen);
  EXPECT_EQ(writer_.leave(7, 12, "two", true), Left::seen);
  EXPECT_FALSE(writer_.is_unseen(7)) << "it is looked for";
  EXPECT_TRUE(reader_.has_news());
  reader_.note_news();
  EXPECT_FALSE(reader_.has_news());
  EXPECT_EQ(reader_.look(3)->after, 12U);
  EXPECT_EQ(read(), "one");
  EXPECT_EQ(read(), "two");
  EXPECT_EQ(read(), "none");
  EXPECT_FALSE(reader_.cease(false));
}

TEST_F(HostMailOfTwo, WhoCeasesToLookHearsWhatWasLeftBefore) {
  for (const bool is_back_soon : {false, true}) {
    reader_.attend();
    EXPECT_EQ(writer_.leave(7, 0, "one", false), Left::seen);
    EXPECT_TRUE(reader_.cease(is_back_soon));
    EXPECT_TRUE(writer_.is_unseen(7));
    reader_.note_news();
    EXPECT_EQ(read(), "one");
    EXPECT_FALSE(writer_.is_unseen(7));
  }
}

TEST_F(HostMailOfTwo, WhoCeasedAMomentAgoGetsWhatMayWait) {
  leave_unseen("one");
  EXPECT_TRUE(writer_.is_unseen(7));
  EXPECT_EQ(writer_.leave(7, 0, "two", false), Left::no) << "this may not wait";
  reader_.attend();
  EXPECT_FALSE(writer_.is_unseen(7));
  EXPECT_TRUE(reader_.cease(false)) << "there is one";
  reader_.note_news();
  EXPECT_EQ(read(), "one");
  EXPECT_EQ(read(), "none");
}

TEST_F(HostMailOfTwo, WhoWillNotBeBackSoonGetsNone) {
  reader_.attend();
  EXPECT_FALSE(reader_.cease(false));
  EXPECT_EQ(writer_.leave(7, 0, "one", true), Left::no);
}

TEST_F(HostMailOfTwo, AfterAMomentNoneIsLeftToWhoIsNotBack) {
  leave_unseen("one");
  EXPECT_EQ(read(), "one");
  const auto deadline = Clock::now() + kLong;
  while (writer_.leave(7, 0, "more", true) != Left::no) {
    ASSERT_LT(Clock::now(), deadline);
    EXPECT_EQ(read(), "more");
  }
}

TEST_F(HostMailOfTwo, WhatIsTooLongOrTooMuchGoesAnotherWay) {
  reader_.attend();
  EXPECT_EQ(writer_.leave(7, 0, std::string(LetterBox::kMostBytes + 1, 'x'), false), Left::no);
  EXPECT_FALSE(reader_.has_news());
  for (std::size_t i = 0; i < LetterBox::kLetters; ++i) {
    EXPECT_EQ(writer_.leave(7, 0, "one", false), Left::seen);
  }
  EXPECT_EQ(writer_.leave(7, 0, "one", false), Left::no);
  EXPECT_EQ(read(), "one");
  EXPECT_EQ(writer_.leave(7, 0, "one", false), Left::seen);
}

TEST_F(HostMailOfTwo, WhoIsOnAnotherHostHasNone) {
  EXPECT_EQ(writer_.leave(5, 0, "one", true), Left::no);
  EXPECT_FALSE(writer_.is_unseen(5));
  EXPECT_FALSE(writer_.look(5).has_value());
}

TEST(HostMail, NeighboursInATreeDoNotGetEachOthersLetters) {
  const auto mail = mail_of({0, 1, 2, 3, 4, 5});
  for (const auto& one : mail) one->attend();
  const auto send = [&mail](int from, int to) {
    const auto left =
        mail[static_cast<std::size_t>(from)]->leave(to, 0, cat(from, " to ", to), false);
    EXPECT_EQ(left, Left::seen);
  };
  const auto expect = [&mail](int from, int to) {
    auto& reader = *mail[static_cast<std::size_t>(to)];
    EXPECT_TRUE(reader.has_news());
    const auto letter = reader.look(from);
    ASSERT_TRUE(letter.has_value());
    EXPECT_EQ(letter->bytes, cat(from, " to ", to));
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

// One end of a game of which the other one must not miss a move: whose is the next is told by a
// letter, or else by the descriptor that it sleeps on.
class Player {
 public:
  Player(HostMail& mail, int other, unsigned seed) : mail_(mail), other_(other), random_(seed) {
    EXPECT_TRUE(poller_.open().ok());
  }

  void play(Player& other, bool begins, std::uint64_t moves, TimePoint deadline) {
    if (begins) move(other, 0);
    for (std::uint64_t next = begins ? 1 : 0; next < moves; next += 2) {
      if (!await(other, next, deadline)) return;
      move(other, next + 1);
    }
    announce(other);
  }
  std::uint64_t letters() const { return letters_; }

 private:
  bool once_in(unsigned times) { return random_() % times == 0; }

  void move(Player& other, std::uint64_t number) {
    if (once_in(50)) announce(other);
    const bool may_wait = !once_in(3);
    const std::string bytes = cat(number);
    switch (mail_.leave(other_, 0, bytes, may_wait)) {
      case Left::no:
        other.said_ = number + 1;
        other.poller_.wake();
        break;
      case Left::seen:
        ++letters_;
        break;
      case Left::unseen:
        ++letters_;
        if (may_wait) {
          unseen_ = true;
        } else {
          other.poller_.wake();
        }
        break;
    }
  }
  void announce(Player& other) {
    if (std::exchange(unseen_, false) && mail_.is_unseen(other_)) other.poller_.wake();
  }

  bool has_come(std::uint64_t number) {
    if (said_ == number + 1) return true;
    if (!mail_.has_news()) return false;
    mail_.note_news();
    const auto letter = mail_.look(other_);
    if (!letter) return false;
    EXPECT_EQ(letter->bytes, cat(number));
    mail_.take(other_);
    return true;
  }

  // Looks for a while, then sleeps, as one who will be back or not.
  bool await(Player& other, std::uint64_t number, TimePoint deadline) {
    for (;;) {
      mail_.attend();
      for (auto looks = random_() % 20; looks > 0; --looks) {
        if (has_come(number)) return true;
        if (once_in(4)) std::this_thread::yield();
      }
      announce(other);
      if (mail_.cease(once_in(2))) continue;
      if (Clock::now() >= deadline) {
        ADD_FAILURE() << "move " << number << " was missed";
        return false;
      }
      poller_.wait(deadline);
      if (has_come(number)) return true;
    }
  }

  HostMail& mail_;
  int other_;
  std::mt19937 random_;
  Poller poller_;
  std::atomic<std::uint64_t> said_ = 0;  // the last move that was no letter, + 1
  bool unseen_ = false;
  std::uint64_t letters_ = 0;
};

TEST(HostMail, NoLetterIsForgottenWhoeverSleepsWhenever) {
  constexpr std::uint64_t kMoves = 200'000;
  const auto mail = mail_of({0, 1});
  Player first(*mail[0], 1, 1);
  Player second(*mail[1], 0, 2);
  const auto deadline = Clock::now() + kLong;
  std::thread plays([&] { second.play(first, false, kMoves, deadline); });
  first.play(second, true, kMoves, deadline);
  plays.join();
  EXPECT_GT(first.letters(), 0U);
  EXPECT_GT(second.letters(), 0U);
}

}  // namespace
}  // namespace hvd::test
