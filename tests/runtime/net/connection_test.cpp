// A connection of the control plane whose ends have the keys of a handshake.
#include "runtime/net/connection.h"

#include <gtest/gtest.h>
#include <string>
#include <sys/socket.h>
#include <utility>

#include "base/socket.h"

namespace hvd::runtime {
namespace {

constexpr std::size_t kMaxFrame = std::size_t{1} << 20;

class ProtectedConnection : public testing::Test {
 protected:
  void SetUp() override {
    auto sockets = socket_pair();
    ASSERT_TRUE(sockets.ok());
    ASSERT_TRUE(set_nonblocking(sockets->second.get(), true).ok());
    ours_.emplace(std::move(sockets->first), kMaxFrame);
    ours_->protect({keys_.to_send, keys_.to_receive});
    wire_ = std::move(sockets->second);
  }
  // All that the first end has sent.
  std::string sent() const {
    std::string bytes(1 << 20, '\0');
    const ssize_t got = ::recv(wire_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return bytes;
  }
  // What the other end makes of these bytes: the frames that it gives out, and the error.
  struct Received {
    std::vector<std::string> frames;
    Status status;
  };
  Received received(std::string_view bytes) const {
    auto sockets = socket_pair();
    EXPECT_TRUE(sockets.ok());
    Connection theirs(std::move(sockets->first), kMaxFrame);
    theirs.protect({keys_.to_receive, keys_.to_send});
    Received received;
    // In small parts.
    for (; !bytes.empty() && received.status.ok();
         bytes.remove_prefix(std::min<std::size_t>(bytes.size(), 777))) {
      const auto part = bytes.substr(0, 777);
      EXPECT_EQ(::send(sockets->second.get(), part.data(), part.size(), 0),
                static_cast<ssize_t>(part.size()));
      received.status = theirs.receive();
      for (;;) {
        auto frame = theirs.next();
        EXPECT_TRUE(frame.ok()) << frame.status().to_string();
        if (!frame.ok() || !frame->has_value()) break;
        received.frames.push_back((*frame)->payload);
      }
    }
    return received;
  }

  const SessionKeys keys_{Token::random(), Token::random()};
  std::optional<Connection> ours_;
  UniqueFd wire_;
};

TEST_F(ProtectedConnection, FramesArriveAndNobodyElseCanReadThem) {
  const std::string secret(100'000, 's');
  ASSERT_TRUE(ours_->send(encode_frame(17, "first") + encode_frame(18, secret)).ok());
  const auto bytes = sent();
  EXPECT_EQ(bytes.find("first"), std::string::npos);
  EXPECT_EQ(bytes.find("ssssssss"), std::string::npos);

  const auto there = received(bytes);
  EXPECT_TRUE(there.status.ok()) << there.status.to_string();
  EXPECT_EQ(there.frames, (std::vector<std::string>{"first", secret}));
}

TEST_F(ProtectedConnection, FramesBeforeAnAlteredRecordAreThoseThatWereSent) {
  ASSERT_TRUE(ours_->send(encode_frame(17, "first")).ok());
  const auto first = sent();
  ASSERT_TRUE(ours_->send(encode_frame(17, "second")).ok());
  const auto second = sent();
  const std::vector<std::string> only_first{"first"};
  for (std::size_t i = 0; i < second.size(); ++i) {
    std::string altered = first + second;
    altered[first.size() + i] = static_cast<char>(altered[first.size() + i] ^ 1);
    const auto there = received(altered);
    EXPECT_EQ(there.frames, only_first) << i;
    // A length that grew asks for more.
    if (there.status.ok()) {
      EXPECT_LT(i, 4U);
    } else {
      EXPECT_EQ(there.status.code(), Code::data_loss) << i;
    }
  }

  const auto swapped = received(second + first);
  EXPECT_EQ(swapped.status.code(), Code::data_loss);
  EXPECT_TRUE(swapped.frames.empty());
  const auto repeated = received(first + first);
  EXPECT_EQ(repeated.status.code(), Code::data_loss);
  EXPECT_EQ(repeated.frames, only_first);
  const auto unprotected = encode_frame(17, "of a stranger");
  const auto foreign = received(unprotected + unprotected + unprotected);
  EXPECT_EQ(foreign.status.code(), Code::data_loss);
  EXPECT_TRUE(foreign.frames.empty());
}

}  // namespace
}  // namespace hvd::runtime
