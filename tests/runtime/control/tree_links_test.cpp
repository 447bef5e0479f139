// Messages between neighbours in the control tree, over their connection and through shared memory:
// they arrive in one order, and malformed ones are detected.
#include "runtime/control/tree_links.h"

#include <future>
#include <gtest/gtest.h>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/text.h"
#include "base/wire.h"
#include "runtime/negotiation/messages.h"
#include "runtime/net/member_connector.h"
#include "tests/runtime/control/worlds.h"
#include "tests/runtime/ops/gloo_ranks.h"

namespace hvd::test {
namespace {

using runtime::ControlTree;
using runtime::Poller;
using runtime::ShmLayout;
using runtime::ShmMailbox;
using runtime::SpscRing;
using runtime::TreeLinks;

constexpr std::uint16_t kKind = 1000;

// One of two ranks, with the objects of a control loop.
struct Member {
  explicit Member(int rank, const std::string& host_of_other = "h0")
      : spec(spec_of(rank, 2)), tree({"h0", host_of_other}) {
    spec.members[0].host = "h0";
    spec.members[1].host = host_of_other;
    spec.config.control_timeout = std::chrono::milliseconds(20);
    EXPECT_TRUE(poller.open().ok());
    links.emplace(spec, tree, poller);
    EXPECT_TRUE(links->open().ok());
  }

  void take_in(const TreeLinks::Received& more) {
    for (const auto& frame : more.frames) frames.push_back(frame);
    if (lost.ok()) lost = more.lost;
    is_malformed = is_malformed || more.is_malformed;
  }
  void look() {
    std::vector<Poller::Event> events;
    poller.look(events);
    for (const auto& event : events) {
      if (const auto more = links->handle(event, Clock::now())) take_in(*more);
    }
    if (!links->has_shm_messages()) return;
    for (const auto& more : links->read_shm_messages()) take_in(more);
  }

  runtime::WorldSpec spec;
  ControlTree tree;
  Poller poller;
  std::shared_ptr<ShmMailbox> mailbox;
  std::optional<TreeLinks> links;
  std::vector<Frame> frames;
  Status lost;
  bool is_malformed = false;
};

TEST(TreeLinks, AFrameThatIsNotProtectedIsNotTaken) {
  Member parent(0);
  const auto port = parse_number<std::uint16_t>(parent.links->address());
  ASSERT_TRUE(port.has_value());
  auto joined = std::async(std::launch::async, [&] {
    return runtime::connect_and_authenticate({parent.spec.members.front().address, *port},
                                             parent.spec.token, {"rank 1", parent.spec.generation},
                                             {"rank 0", parent.spec.generation},
                                             Clock::now() + kLong);
  });
  const auto deadline = Clock::now() + kLong;
  while (!parent.links->complete() && Clock::now() < deadline) parent.look();
  const auto socket = joined.get();
  ASSERT_TRUE(socket.ok()) << socket.status().to_string();

  std::string frames;
  for (int i = 0; i < 9; ++i) frames += encode_frame(kKind, "unprotected");
  ASSERT_TRUE(send_all(socket->fd.get(), frames, deadline).ok());
  while (parent.lost.ok() && Clock::now() < deadline) parent.look();
  EXPECT_EQ(parent.lost.code(), Code::data_loss) << parent.lost.to_string();
  EXPECT_TRUE(parent.frames.empty());
}

class TreeLinksOfTwo : public testing::Test {
 protected:
  explicit TreeLinksOfTwo(const std::string& host_of_child = "h0")
      : parent_(0, host_of_child), child_(1, host_of_child) {
    auto joined = std::async(std::launch::async, [this] {
      return child_.links->join_parent(parent_.links->address(), Clock::now() + kLong);
    });
    until([this] { return parent_.links->complete(); });
    const Status status = joined.get();
    EXPECT_TRUE(status.ok()) << status.to_string();
  }

  void share_memory() {
    const auto memory = ShmLayout::create(2, 4096);
    ASSERT_TRUE(memory.ok()) << memory.status().to_string();
    for (auto* const one : {&parent_, &child_}) {
      one->mailbox = std::make_shared<ShmMailbox>(adopted(*memory, 2), std::vector<int>{0, 1},
                                                  static_cast<std::size_t>(one->spec.rank));
      one->links->use_mailbox(one->mailbox);
    }
  }

  template <typename Done>
  void until(Done done) {
    const auto deadline = Clock::now() + kLong;
    while (!done()) {
      ASSERT_LT(Clock::now(), deadline) << "the test waited in vain";
      parent_.look();
      child_.look();
    }
  }

  // The parent writes a message that may wait, just after the child stopped polling.
  void leave_unseen(const std::string& payload) {
    const auto deadline = Clock::now() + kLong;
    for (;;) {
      ASSERT_LT(Clock::now(), deadline);
      child_.mailbox->start_polling();
      child_.mailbox->stop_polling(true);
      parent_.links->send(1, encode_frame(kKind, payload), true);
      if (child_.mailbox->has_new()) return;
      // The child had stopped polling too long ago: the message went over the connection.
      const auto before = child_.frames.size();
      until([&] { return child_.frames.size() > before; });
      child_.frames.clear();
    }
  }
  bool hears_something() {
    std::vector<Poller::Event> events;
    return child_.poller.look(events);
  }

  Member parent_;
  Member child_;
};

class LinksBetweenHosts : public TreeLinksOfTwo {
 protected:
  LinksBetweenHosts() : TreeLinksOfTwo("h1") {}

  // Of the parent alone: the child says nothing by itself.
  std::optional<TreeLinks::Received> lost_by(TimePoint deadline) {
    while (Clock::now() < deadline) {
      const auto lost = parent_.links->keep_alive(Clock::now());
      if (!lost.empty()) return lost.front();
      parent_.look();
    }
    return std::nullopt;
  }
};

// Numbered frames, of sizes from zero to more than a socket holds, most of them short.
std::string numbered(std::uint64_t number, std::mt19937& random) {
  std::size_t size = random() % 100;
  if (random() % 8 == 0) size = random() % (2 * SpscRing::kMaxBytes);
  if (random() % 200 == 0) size = random() % (std::size_t{8} << 20);
  return encode_frame(kKind, WireWriter().u64(number).take() + std::string(size, 'x'));
}

TEST_F(TreeLinksOfTwo, SharedMemoryAndSocketKeepTheOrderOfSending) {
  share_memory();
  constexpr std::uint64_t kFrames = 3000;
  std::mt19937 random(1);
  std::uint64_t sent = 0;
  std::size_t messages = 0;
  while (sent < kFrames) {
    for (auto* const one : {&parent_, &child_}) {
      if (random() % 2 == 0) {
        one->mailbox->start_polling();
      } else {
        one->mailbox->stop_polling(random() % 2 == 0);
      }
    }
    for (auto burst = random() % 20; burst > 0; --burst, ++sent) {
      const bool may_wait = random() % 2 == 0;
      parent_.links->send(1, numbered(sent, random), may_wait);
      child_.links->send(0, numbered(sent, random), may_wait);
    }
    messages += static_cast<std::size_t>(child_.links->has_shm_messages());
    if (random() % 2 == 0) parent_.look();
    if (random() % 2 == 0) child_.look();
  }
  EXPECT_GT(messages, 0U);
  until([&] { return parent_.frames.size() >= sent && child_.frames.size() >= sent; });
  for (const auto* const one : {&parent_, &child_}) {
    EXPECT_TRUE(one->lost.ok()) << one->lost.to_string();
    ASSERT_EQ(one->frames.size(), sent);
    for (std::uint64_t i = 0; i < sent; ++i) {
      const Frame& frame = one->frames[i];
      ASSERT_EQ(frame.kind, kKind);
      ASSERT_EQ(WireReader(std::string_view(frame.payload).substr(0, 8)).u64(), i);
    }
  }
}

TEST_F(TreeLinksOfTwo, MessagesThatMayWaitAreNotNotifiedBeforeNotifyUnseen) {
  share_memory();
  leave_unseen("may wait");
  while (hears_something()) {
  }
  parent_.links->notify_unseen(std::chrono::hours(1));
  EXPECT_FALSE(hears_something()) << "it is not that old";
  parent_.links->notify_unseen();
  EXPECT_TRUE(child_.poller.wait(Clock::now() + kLong).size() == 1);
  parent_.links->notify_unseen();
  EXPECT_FALSE(hears_something()) << "once is enough";
  for (const auto& received : child_.links->read_shm_messages()) child_.take_in(received);
  ASSERT_EQ(child_.frames.size(), 1U);
  EXPECT_EQ(child_.frames.front().payload, "may wait");
}

TEST_F(TreeLinksOfTwo, ANotificationIsNotDeliveredWhereMemoryIsShared) {
  share_memory();
  leave_unseen("may wait");
  parent_.links->notify_unseen();
  parent_.links->send(1, encode_frame(kKind, std::string(SpscRing::kMaxBytes, 'x')));
  until([this] { return child_.frames.size() >= 2; });
  EXPECT_EQ(child_.frames.size(), 2U);
  EXPECT_EQ(child_.frames.front().payload, "may wait");
  EXPECT_EQ(child_.frames.back().payload.size(), SpscRing::kMaxBytes);
}

TEST_F(TreeLinksOfTwo, MessagesThatAreReadNeedNoNotification) {
  share_memory();
  leave_unseen("is read");
  while (hears_something()) {
  }
  for (const auto& received : child_.links->read_shm_messages()) child_.take_in(received);
  parent_.links->notify_unseen();
  EXPECT_FALSE(hears_something());
  leave_unseen("will be read");
  while (hears_something()) {
  }
  child_.mailbox->start_polling();
  parent_.links->notify_unseen();
  EXPECT_FALSE(hears_something());
  EXPECT_TRUE(child_.mailbox->stop_polling(false)) << "the closing side checks again";
}

TEST_F(TreeLinksOfTwo, WithoutSharedMemoryANotificationIsDelivered) {
  parent_.links->send(1, runtime::encode_shm_notification());
  until([this] { return !child_.frames.empty(); });
  EXPECT_EQ(child_.frames.front().kind,
            static_cast<std::uint16_t>(runtime::Message::shm_notification));
}

TEST_F(LinksBetweenHosts, ANeighbourThatHasSpokenAndSaysNothingMoreIsLost) {
  const auto in_vain = [this] { return Clock::now() + 5 * parent_.spec.config.control_timeout; };
  EXPECT_FALSE(lost_by(in_vain())) << "it may still connect to its own parent";
  child_.links->send(0, encode_frame(kKind, "only word"));
  until([this] { return !parent_.frames.empty(); });
  const auto lost = lost_by(Clock::now() + kLong);
  ASSERT_TRUE(lost.has_value());
  EXPECT_EQ(lost->rank, 1);
  EXPECT_EQ(lost->lost.code(), Code::unavailable);
  EXPECT_FALSE(lost->is_malformed);
}

TEST_F(LinksBetweenHosts, ANeighbourThatNeverSpeaksIsLostWhenItMustBeConnected) {
  parent_.spec.config.connect_timeout = std::chrono::milliseconds(20);
  const auto lost = lost_by(Clock::now() + kLong);
  ASSERT_TRUE(lost.has_value());
  EXPECT_EQ(lost->lost.code(), Code::unavailable);
}

TEST_F(LinksBetweenHosts, ASignOfLifeIsHeardAndIsNoMessage) {
  child_.links->keep_alive(Clock::now());
  bool is_heard = false;
  std::vector<Poller::Event> events;
  while (!is_heard) {
    events = parent_.poller.wait(Clock::now() + kLong);
    ASSERT_FALSE(events.empty());
    for (const auto& event : events) {
      if (const auto more = parent_.links->handle(event, Clock::now())) {
        EXPECT_TRUE(more->frames.empty());
        EXPECT_TRUE(more->lost.ok()) << more->lost.to_string();
        is_heard = true;
      }
    }
  }
  EXPECT_TRUE(lost_by(Clock::now() + kLong)) << "it was the last one";
}

TEST_F(TreeLinksOfTwo, ANeighbourOnTheSameHostMaySayNothing) {
  child_.links->send(0, encode_frame(kKind, "only word"));
  until([this] { return !parent_.frames.empty(); });
  const auto limit = Clock::now() + 5 * parent_.spec.config.control_timeout;
  while (Clock::now() < limit) EXPECT_TRUE(parent_.links->keep_alive(Clock::now()).empty());
}

TEST_F(TreeLinksOfTwo, MessagesOfALostPeerAreReadFirst) {
  share_memory();
  child_.mailbox->start_polling();
  const std::string large(std::size_t{1} << 16, 'x');
  for (const auto& payload : {std::string("first"), large, std::string("last")}) {
    parent_.links->send(1, encode_frame(kKind, payload));
  }
  parent_.links.reset();
  std::vector<Poller::Event> events;
  // The connection ends before the messages in shared memory were read.
  while (child_.lost.ok()) {
    events = child_.poller.wait(Clock::now() + kLong);
    ASSERT_FALSE(events.empty());
    for (const auto& event : events) {
      if (const auto more = child_.links->handle(event, Clock::now())) child_.take_in(*more);
    }
  }
  EXPECT_FALSE(child_.is_malformed);
  ASSERT_EQ(child_.frames.size(), 3U);
  EXPECT_EQ(child_.frames[0].payload, "first");
  EXPECT_EQ(child_.frames[1].payload, large);
  EXPECT_EQ(child_.frames[2].payload, "last");
  child_.links->drop(0);
  EXPECT_TRUE(child_.links->read_shm_messages().empty());
}

TEST_F(TreeLinksOfTwo, AMessageIsOneFrameOrTheConnectionEnds) {
  const std::string frame = encode_frame(kKind, "good");
  const std::string cut = frame.substr(0, frame.size() - 1);
  const std::string endless = WireWriter().u32(1U << 31).u16(kKind).take();
  for (const auto& bytes : {std::string(), std::string("x"), cut, frame + frame, frame + "x",
                            endless, std::string(SpscRing::kMaxBytes, '\xff')}) {
    share_memory();
    child_.mailbox->start_polling();
    parent_.links->send(1, frame);
    ASSERT_EQ(parent_.mailbox->send(1, 0, bytes, false), ShmMailbox::SendResult::seen);
    const auto received = child_.links->read_shm_messages();
    ASSERT_EQ(received.size(), 1U);
    EXPECT_TRUE(received.front().is_malformed);
    EXPECT_EQ(received.front().lost.code(), Code::data_loss) << received.front().lost.to_string();
    EXPECT_EQ(received.front().frames.size(), 1U) << "what came before it";
  }
}

}  // namespace
}  // namespace hvd::test
