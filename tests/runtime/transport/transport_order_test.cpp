// In which order messages end that travel over several connections, of which one may be the faster.
#include <algorithm>
#include <cstring>
#include <random>
#include <sys/socket.h>

#include "base/socket.h"
#include "tests/runtime/transport/transport_ranks.h"

namespace hvd::test {
namespace {

using runtime::Direction;
using runtime::Endpoint;
using runtime::MessageHeader;
using runtime::TcpMesh;

constexpr std::uint64_t kSlot = 7;
constexpr std::uint64_t kOtherSlot = 8;

// Rank 0 of two, with two connections of which the test has the other ends.
class TwoConnections : public ::testing::Test {
 protected:
  static constexpr std::size_t kStripedFrom = 128;

  void SetUp() override {
    ASSERT_TRUE(messenger_.open([](const runtime::Route&) {}).ok());
    for (int socket = 0; socket < 2; ++socket) {
      auto pair = socket_pair();
      ASSERT_TRUE(pair.ok());
      own_[socket] = pair->first.get();
      ASSERT_TRUE(
          messenger_
              .adopt({1, socket}, {std::move(pair->first), {Token::random(), Token::random()}})
              .ok());
      theirs_[socket] = std::move(pair->second);
    }
  }
  void TearDown() override { messenger_.abort({Code::aborted, "the test is over"}); }

  // One part of a message of rank 1.
  void say(int socket, std::uint64_t slot, std::size_t bytes, char what) {
    MessageHeader header;
    header.sequence = sequences_[socket]++;
    header.slot = slot;
    header.bytes = bytes;
    std::string text(reinterpret_cast<const char*>(&header), sizeof(header));
    text.append(bytes, what);
    ASSERT_TRUE(send_all(theirs_[socket].get(), text, Clock::now() + kLong).ok());
  }
  void expect(Endpoint& endpoint, std::uint64_t slot, std::string& memory) {
    const int from = 1;
    ASSERT_TRUE(messenger_
                    .receive(endpoint, {&from, 1}, slot,
                             reinterpret_cast<std::byte*>(memory.data()), memory.size())
                    .ok());
  }
  void send(Endpoint& endpoint, std::uint64_t slot, const std::string& memory) {
    ASSERT_TRUE(messenger_
                    .send(endpoint, 1, slot, reinterpret_cast<const std::byte*>(memory.data()),
                          memory.size())
                    .ok());
  }
  // The rank at the other end of the next one that ends.
  int wait(Endpoint& endpoint, Direction direction) {
    const auto ended = messenger_.wait(endpoint, direction, kLong);
    EXPECT_TRUE(ended.ok()) << ended.status().to_string();
    return ended.ok() && *ended ? **ended : -1;
  }
  // Whether there is one that wait() would tell at once.
  bool has_ended(Endpoint& endpoint, Direction direction) {
    messenger_.release(endpoint, direction);
    const auto ended = messenger_.wait(endpoint, direction, kLong);
    if (ended.ok() && !*ended) return false;
    EXPECT_TRUE(ended.ok()) << ended.status().to_string();
    return true;
  }

  runtime::Messenger messenger_{
      0, 2, {.sockets = 2, .striped_from = kStripedFrom, .protection = Protection::none}};
  std::array<int, 2> own_{};
  std::array<UniqueFd, 2> theirs_;
  std::array<std::uint32_t, 2> sequences_{};
};

TEST_F(TwoConnections, AReceiveThatIsOvertakenIsReportedFirst) {
  Endpoint both;
  Endpoint other;
  std::string large(2 * kStripedFrom, '-');
  std::string little(3, '-');
  std::string last(1, '-');
  expect(both, kSlot, large);
  expect(both, kSlot, little);
  expect(other, kOtherSlot, last);

  say(0, kSlot, kStripedFrom, 'L');
  say(0, kSlot, little.size(), 'l');
  say(0, kOtherSlot, last.size(), 'x');
  EXPECT_EQ(wait(other, Direction::receive), 1);
  EXPECT_EQ(little, "lll") << "it came before the message that was just waited for";
  EXPECT_FALSE(has_ended(both, Direction::receive)) << "half of the first one is missing";

  say(1, kSlot, kStripedFrom, 'L');
  EXPECT_EQ(wait(both, Direction::receive), 1);
  EXPECT_EQ(large, std::string(2 * kStripedFrom, 'L'));
  EXPECT_TRUE(has_ended(both, Direction::receive));
}

TEST_F(TwoConnections, AReceiveOfAnotherSlotIsNotHeldBack) {
  Endpoint both;
  std::string large(2 * kStripedFrom, '-');
  std::string little(3, '-');
  expect(both, kSlot, large);
  expect(both, kOtherSlot, little);

  say(0, kSlot, kStripedFrom, 'L');
  say(0, kOtherSlot, little.size(), 'l');
  EXPECT_EQ(wait(both, Direction::receive), 1);
  EXPECT_EQ(little, "lll");

  say(1, kSlot, kStripedFrom, 'L');
  EXPECT_EQ(wait(both, Direction::receive), 1);
  EXPECT_EQ(large, std::string(2 * kStripedFrom, 'L'));
}

// Messages that came before their receives were posted end in the order of posting, too.
TEST_F(TwoConnections, AReceiveOfAStoredMessageIsReportedInItsTurn) {
  Endpoint both;
  Endpoint other;
  std::string last(1, '-');
  say(0, kSlot, kStripedFrom, 'L');
  say(0, kSlot, 3, 'l');
  say(0, kOtherSlot, last.size(), 'x');
  expect(other, kOtherSlot, last);
  EXPECT_EQ(wait(other, Direction::receive), 1);

  std::string large(2 * kStripedFrom, '-');
  std::string little(3, '-');
  expect(both, kSlot, large);
  expect(both, kSlot, little);
  EXPECT_EQ(little, "lll");
  EXPECT_FALSE(has_ended(both, Direction::receive)) << "half of the first one is missing";

  say(1, kSlot, kStripedFrom, 'L');
  EXPECT_EQ(wait(both, Direction::receive), 1);
  EXPECT_EQ(large, std::string(2 * kStripedFrom, 'L'));
  EXPECT_EQ(wait(both, Direction::receive), 1);
}

TEST_F(TwoConnections, ASendThatIsOvertakenIsReportedFirst) {
  const int small = 4096;
  ASSERT_EQ(::setsockopt(own_[1], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
  Endpoint both;
  Endpoint other;
  const std::string large(128 << 10,
                          'L');  // half of it fits into one connection, and not the other
  const std::string little(3, 'l');
  send(both, kSlot, large);
  send(both, kSlot, little);
  send(other, kOtherSlot, little);
  EXPECT_EQ(wait(other, Direction::send), 1) << "it left behind the two others";
  EXPECT_FALSE(has_ended(both, Direction::send)) << "half of the first one is here";

  std::thread reader([this] {
    std::vector<char> memory(64 << 10);
    while (::recv(theirs_[1].get(), memory.data(), memory.size(), 0) > 0) {
    }
  });
  EXPECT_EQ(wait(both, Direction::send), 1);
  EXPECT_TRUE(has_ended(both, Direction::send));
  messenger_.abort({Code::aborted, "the reader sees the end"});
  reader.join();
}

struct Piece {
  std::size_t offset;
  std::size_t bytes;
  std::uint64_t slot;
};

// One after another in a buffer, of all sizes around those from which messages are cut up and go
// in several system calls.
std::vector<Piece> pieces_of_every_size(unsigned seed) {
  constexpr std::size_t kLimits[] = {1,       64,     4096, 16 << 10, 1 << 18, (1 << 20) - 24,
                                     1 << 20, 3 << 20};
  std::mt19937 random(seed);
  std::vector<Piece> pieces;
  std::size_t offset = 0;
  for (const std::size_t limit : kLimits) {
    for (const std::ptrdiff_t more : {-1, 0, 1, 40, 1'000}) {
      const std::size_t bytes = limit + static_cast<std::size_t>(more);
      if (bytes > 0) pieces.push_back({0, bytes, kSlot + random() % 2});
    }
  }
  std::shuffle(pieces.begin(), pieces.end(), random);
  for (auto& piece : pieces) {
    piece.offset = offset;
    offset += piece.bytes;
  }
  return pieces;
}

class OrderOfMessages : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sockets, OrderOfMessages, ::testing::Values(1, 2, 3, 4));

// All algorithms that pass pieces on take them in this order: the next one that ends is the oldest
// one. The two slots share only the buffer.
TEST_P(OrderOfMessages, OnOneBufferIsThatInWhichTheyWereBegun) {
  const MeshSockets sockets(GetParam());
  on_meshes(2, [](int rank, TcpMesh& mesh) {
    for (unsigned seed = 0; seed < 2; ++seed) {
      const auto pieces = pieces_of_every_size(seed);
      const std::size_t bytes = pieces.back().offset + pieces.back().bytes;
      Bytes all(mesh, bytes, rank == 0 ? static_cast<int>(seed) : -1);
      if (rank == 0) {
        for (const auto& piece : pieces) all.buffer->send(1, piece.slot, piece.offset, piece.bytes);
        for (std::size_t i = 0; i < pieces.size(); ++i) all.wait_sent();
        continue;
      }

      // Two buffers of the same memory, so that the slots can be told apart.
      const auto wanted = Bytes(mesh, bytes, static_cast<int>(seed)).data;
      Bytes& first = all;
      const auto second = mesh.transport().createUnboundBuffer(all.data.data(), bytes);
      const auto buffer_of = [&](const Piece& piece) {
        return piece.slot == kSlot ? first.buffer.get() : second.get();
      };
      for (const auto& piece : pieces) {
        buffer_of(piece)->recv(0, piece.slot, piece.offset, piece.bytes);
      }
      for (const auto& piece : pieces) {
        ASSERT_TRUE(buffer_of(piece)->waitRecv(nullptr, kLong));
        if (std::memcmp(&all.data[piece.offset], &wanted[piece.offset], piece.bytes) == 0) continue;
        const auto begin = static_cast<std::ptrdiff_t>(piece.offset);
        const auto end = begin + static_cast<std::ptrdiff_t>(piece.bytes);
        const auto [found, right] =
            std::mismatch(all.data.begin() + begin, all.data.begin() + end, wanted.begin() + begin);
        FAIL() << "byte " << found - all.data.begin() - begin << " of " << piece.bytes << " is "
               << static_cast<int>(*found) << ", not " << static_cast<int>(*right) << "; seed "
               << seed;
      }
    }
  });
}

}  // namespace
}  // namespace hvd::test
