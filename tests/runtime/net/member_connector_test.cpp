// A member that connects to another one, on real sockets.
#include "runtime/net/member_connector.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <thread>

#include "runtime/net/member_acceptor.h"
#include "tests/support/process.h"

namespace hvd::runtime {
namespace {

const HandshakeIdentity kParent{"rank 0", 7};
const HandshakeIdentity kChild{"rank 1", 7};

// When the listener resets a connection.
enum class Reset { at_once, after_the_challenge, after_the_proof };

class ConnectingMember : public testing::Test {
 protected:
  void SetUp() override {
    auto listener = listen_tcp({"127.0.0.1", 0});
    ASSERT_TRUE(listener.ok()) << listener.status().to_string();
    listener_ = std::move(*listener);
    const auto where = local_address(listener_.get());
    ASSERT_TRUE(where.ok());
    where_ = *where;
  }

  TimePoint generous() const { return begun_ + test::kGenerous; }
  Result<ProvedSocket> connect(const Token& token) const {
    return connect_and_authenticate(where_, token, kChild, kParent, generous(), -1,
                                    std::chrono::milliseconds(test::kGenerous));
  }

  // Accepts the next connection, and resets it.
  void reset_one(Reset when) const {
    auto fd = accept_tcp(listener_.get(), generous());
    ASSERT_TRUE(fd.ok()) << fd.status().to_string();
    if (when != Reset::at_once) {
      HandshakeAcceptor handshake(token_, kTreePurpose, kParent);
      ASSERT_TRUE(send_all(fd->get(), handshake.challenge(), generous()).ok());
    }
    if (when == Reset::after_the_proof) {
      FrameDecoder decoder(kMaxHandshakeFrame);
      ASSERT_TRUE(receive_frame(fd->get(), decoder, generous()).ok());
    }
    const linger at_once{1, 0};
    ASSERT_EQ(::setsockopt(fd->get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
  }
  // Serves the listener as a parent in the control tree does. Returns the member's name.
  std::string accept_member() {
    Poller poller;
    EXPECT_TRUE(poller.open().ok());
    MemberAcceptor acceptor(poller, token_, kParent, test::kGenerous, kTreePurpose, 1);
    EXPECT_TRUE(acceptor.adopt(std::move(listener_)).ok());
    while (Clock::now() < generous()) {
      for (const auto& event : poller.wait(generous())) {
        if (!acceptor.owns(event.fd)) continue;
        const auto arrival = acceptor.handle(event, Clock::now());
        if (!arrival) continue;
        poller.forget(arrival->connection->fd());
        return arrival->name;
      }
    }
    return "nobody";
  }

  TimePoint begun_ = Clock::now();
  Token token_ = Token::random();
  UniqueFd listener_;
  SocketAddress where_;
};

TEST_F(ConnectingMember, IsAcceptedAfterAResetInItsHandshake) {
  Result<ProvedSocket> reached = Status(Code::internal, "not yet");
  std::jthread member([&] { reached = connect(token_); });
  reset_one(Reset::at_once);
  reset_one(Reset::after_the_challenge);
  reset_one(Reset::after_the_proof);
  EXPECT_EQ(accept_member(), "rank 1");
  member.join();
  EXPECT_TRUE(reached.ok()) << reached.status().to_string();
}

TEST_F(ConnectingMember, GivesUpWhenEveryConnectionIsReset) {
  Result<ProvedSocket> reached = Status(Code::internal, "not yet");
  std::jthread member([&] { reached = connect(token_); });
  for (int connection = 0; connection < 5; ++connection) {
    ASSERT_NO_FATAL_FAILURE(reset_one(Reset::after_the_proof));
  }
  member.join();
  ASSERT_FALSE(reached.ok());
  EXPECT_EQ(reached.status().code(), Code::unavailable) << reached.status().to_string();
  EXPECT_EQ(accept_tcp(listener_.get(), Clock::now()).status().code(), Code::deadline_exceeded);
}

TEST_F(ConnectingMember, IsRefusedForAWrongTokenAtTheFirstConnection) {
  Result<ProvedSocket> reached = Status(Code::internal, "not yet");
  std::jthread member([&] { reached = connect(Token::random()); });
  {
    auto fd = accept_tcp(listener_.get(), generous());
    ASSERT_TRUE(fd.ok()) << fd.status().to_string();
    HandshakeAcceptor handshake(token_, kTreePurpose, kParent);
    ASSERT_TRUE(send_all(fd->get(), handshake.challenge(), generous()).ok());
    FrameDecoder decoder(kMaxHandshakeFrame);
    const auto proof = receive_frame(fd->get(), decoder, generous());
    ASSERT_TRUE(proof.ok()) << proof.status().to_string();
    std::string reply;
    EXPECT_FALSE(handshake.accept(*proof, reply).ok());
    ASSERT_TRUE(send_all(fd->get(), reply, generous()).ok());
  }
  member.join();
  EXPECT_EQ(reached.status().code(), Code::unauthenticated) << reached.status().to_string();
  EXPECT_EQ(accept_tcp(listener_.get(), Clock::now()).status().code(), Code::deadline_exceeded);
}

}  // namespace
}  // namespace hvd::runtime
