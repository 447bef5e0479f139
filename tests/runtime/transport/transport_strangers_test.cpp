// Foreign connections to a data port: strangers, impostors, and members of other generations. They
// change no result, end no process, and hold up no member.
#include <optional>
#include <poll.h>
#include <random>
#include <span>
#include <sys/socket.h>

#include "base/security/handshake.h"
#include "base/wire.h"
#include "runtime/transport/message_header.h"
#include "tests/runtime/transport/transport_ranks.h"

namespace hvd::test {
namespace {

using runtime::TcpMesh;

constexpr std::string_view kData = "data";

SocketAddress port_of(const runtime::Mesh& mesh) {
  const auto address = mesh.address();
  WireReader in(address);
  SocketAddress where;
  where.host = in.str();
  where.port = in.u16();
  return where;
}

UniqueFd connect_to(const SocketAddress& where) {
  auto fd = connect_tcp(where, Clock::now() + kLong);
  EXPECT_TRUE(fd.ok()) << fd.status().to_string();
  return fd.ok() ? std::move(*fd) : UniqueFd();
}

void say(const UniqueFd& fd, std::string_view bytes) {
  // The other end may have closed the connection, which is its right.
  (void)send_all(fd.get(), bytes, Clock::now() + kLong);
}

// The last answer of the port: the refusal, or that it has closed the connection.
Result<SessionKeys> verdict_on(const UniqueFd& fd, const HandshakeConnector& connector) {
  FrameDecoder decoder;
  auto frame = receive_frame(fd.get(), decoder, Clock::now() + kLong);
  return frame.ok() ? connector.check(*frame) : frame.status();
}

// Authenticates as `name` of that generation, with that token, for that purpose, to the listener
// `host`.
struct Client {
  std::string name = "rank 2";
  std::uint64_t generation = 1;
  Token token = mesh_token;
  std::string purpose = std::string(kData);
  std::string host = "rank 0";

  Result<SessionKeys> authenticate(const UniqueFd& fd) const {
    HandshakeConnector connector(token, purpose, {name, generation}, {host, generation});
    FrameDecoder decoder;
    auto challenge = receive_frame(fd.get(), decoder, Clock::now() + kLong);
    HVD_RETURN_IF_ERROR(challenge.status());
    auto proof = connector.prove(*challenge);
    HVD_RETURN_IF_ERROR(proof.status());
    say(fd, *proof);
    return verdict_on(fd, connector);
  }
};

// The port closes such a connection, or has closed it.
void expect_disconnected(const UniqueFd& fd) {
  std::array<char, 4096> bytes{};
  for (;;) {
    ASSERT_TRUE(wait_for(fd.get(), POLLIN, Clock::now() + kLong).ok()) << "it is still open";
    const auto got = ::recv(fd.get(), bytes.data(), bytes.size(), 0);
    if (got <= 0) return;
  }
}

// Both exchange some bytes.
void expect_messages_work(int rank, TcpMesh& mesh, int size) {
  for (int round = 0; round < 3; ++round) {
    std::vector<Bytes> in;
    std::vector<Bytes> out;
    for (int other = 0; other < size; ++other) {
      if (other == rank) continue;
      in.emplace_back(mesh, 50'000);
      in.back().receive(other, 1);
      out.emplace_back(mesh, 50'000, rank);
      out.back().send(other, 1);
    }
    for (auto& bytes : in) {
      const int from = bytes.wait_received();
      EXPECT_TRUE(bytes.is_from(from));
    }
    for (auto& bytes : out) bytes.wait_sent();
  }
}

// With one socket for each pair, and with two.
class Strangers : public ::testing::TestWithParam<int> {
 protected:
  MeshSockets sockets_{GetParam()};
  // `before` runs when the ports are open and nobody is connected, `after` when all are.
  using Attack = std::function<void(const SocketAddress& port)>;
  static void attack_rank_0(const Attack& before, const Attack& after) {
    constexpr int kSize = 3;
    Hub attacked(kSize);
    Hub finished(kSize);
    on_meshes(kSize, [&](int rank, TcpMesh& mesh) {
      if (rank == 0) before(port_of(mesh));
      ASSERT_TRUE(attacked.exchange(rank, "", Clock::now() + kLong).ok());
      std::thread during;
      if (rank == 0) during = std::thread([&] { before(port_of(mesh)); });
      expect_messages_work(rank, mesh, kSize);
      if (rank == 0) {
        during.join();
        after(port_of(mesh));
      }
      ASSERT_TRUE(finished.exchange(rank, "", Clock::now() + kLong).ok());
      expect_messages_work(rank, mesh, kSize);
    });
  }
  static void attack_rank_0(const Attack& attack) { attack_rank_0(attack, attack); }
};

INSTANTIATE_TEST_SUITE_P(Sockets, Strangers, ::testing::Values(1, 2));

TEST_P(Strangers, WithGarbageAreDisconnected) {
  attack_rank_0([](const SocketAddress& port) {
    const auto fd = connect_to(port);
    say(fd, std::string(300'000, '\xA5'));
    expect_disconnected(fd);
    const auto other = connect_to(port);
    say(other, std::string("\xFF\xFF\xFF\xFF", 4));
    expect_disconnected(other);
    const auto http = connect_to(port);
    say(http, "GET / HTTP/1.1\r\n\r\n");
    expect_disconnected(http);
  });
}

TEST_P(Strangers, WithoutTheTokenAreRefused) {
  attack_rank_0([](const SocketAddress& port) {
    const auto fd = connect_to(port);
    EXPECT_EQ(Client{.token = Token::random()}.authenticate(fd).status().code(),
              Code::unauthenticated);
    expect_disconnected(fd);
  });
}

TEST_P(Strangers, OfAnotherGenerationAreRefusedAndToldWhy) {
  attack_rank_0([](const SocketAddress& port) {
    for (const std::uint64_t generation : {0, 2}) {
      const auto fd = connect_to(port);
      const Status verdict = Client{.generation = generation}.authenticate(fd).status();
      EXPECT_EQ(verdict.code(), Code::failed_precondition) << verdict.to_string();
      expect_disconnected(fd);
    }
  });
}

TEST_P(Strangers, WithAnotherPurposeAreRefused) {
  attack_rank_0([](const SocketAddress& port) {
    const auto fd = connect_to(port);
    EXPECT_EQ(Client{.purpose = "coordinator"}.authenticate(fd).status().code(),
              Code::unauthenticated);
    expect_disconnected(fd);
  });
}

TEST_P(Strangers, OfAnotherListenerAreRefused) {
  attack_rank_0([](const SocketAddress& port) {
    const auto fd = connect_to(port);
    EXPECT_EQ(Client{.host = "rank 1"}.authenticate(fd).status().code(), Code::unauthenticated);
    expect_disconnected(fd);
  });
}

TEST_P(Strangers, WithTheTokenButNoSuchRankAreDisconnected) {
  attack_rank_0([](const SocketAddress& port) {
    for (const auto* const name : {"rank 0", "rank 3", "rank -1", "rank 02", "", "rank 1 ",
                                   "rank 1, socket 0", "rank 1, socket 2", "rank 1, socket"}) {
      const auto fd = connect_to(port);
      (void)Client{.name = name}.authenticate(fd);
      expect_disconnected(fd);
    }
  });
}

TEST_P(Strangers, WithTheNameOfAConnectedRankAreDisconnected) {
  attack_rank_0([](const SocketAddress&) {},
                [](const SocketAddress& port) {
                  for (const auto* const name : {"rank 1", "rank 1, socket 1"}) {
                    const auto fd = connect_to(port);
                    (void)Client{.name = name}.authenticate(fd);
                    say(fd, "HVD1 and something");
                    expect_disconnected(fd);
                  }
                });
}

TEST_P(Strangers, WithAReplayedProofAreRefused) {
  attack_rank_0([](const SocketAddress& port) {
    // A proof that was right, once, for another challenge.
    const auto first = connect_to(port);
    HandshakeConnector connector(mesh_token, kData, {"rank 2", 0}, {"rank 0", 0});
    FrameDecoder decoder;
    auto challenge = receive_frame(first.get(), decoder, Clock::now() + kLong);
    ASSERT_TRUE(challenge.ok());
    auto proof = connector.prove(*challenge);
    ASSERT_TRUE(proof.ok());
    for (int i = 0; i < 3; ++i) {
      const auto again = connect_to(port);
      say(again, *proof);
      expect_disconnected(again);
    }
    say(first, *proof);  // right, but of generation 0
    EXPECT_EQ(verdict_on(first, connector).status().code(), Code::failed_precondition);
  });
}

TEST_P(Strangers, WithHalfAHelloDelayNoRank) {
  std::vector<UniqueFd> open;
  std::mutex mutex;
  attack_rank_0([&](const SocketAddress& port) {
    for (const std::size_t length : {1UL, 4UL, 5UL, 20UL, 60UL}) {
      auto fd = connect_to(port);
      HandshakeConnector connector(mesh_token, kData, {"rank 2", 1}, {"rank 0", 1});
      FrameDecoder decoder;
      auto challenge = receive_frame(fd.get(), decoder, Clock::now() + kLong);
      ASSERT_TRUE(challenge.ok());
      say(fd, connector.prove(*challenge)->substr(0, length));
      const std::lock_guard lock(mutex);
      open.push_back(std::move(fd));
    }
  });
}

TEST_P(Strangers, InSilentCrowdsCostABoundedAmountAndDelayNoRank) {
  std::vector<UniqueFd> open;
  std::mutex mutex;
  attack_rank_0([&](const SocketAddress& port) {
    for (std::size_t i = 0; i < 2 * runtime::MeshConnector::kMaxPending; ++i) {
      auto fd = connect_to(port);
      const std::lock_guard lock(mutex);
      open.push_back(std::move(fd));
    }
    // The oldest made room.
    const std::lock_guard lock(mutex);
    expect_disconnected(open.front());
  });
}

TEST(StrangersTime, IsLimited) {
  auto options = mesh_options(0, 2);
  options.connector.handshake_timeout = std::chrono::milliseconds(50);
  const auto mesh = make_tcp_mesh(options);
  const auto fd = connect_to(port_of(*mesh));
  expect_disconnected(fd);
}

TEST(AnsweringStrangers, GarbageFromAPeersAddressIsNotBelieved) {
  for (const auto* const answer : {"", "garbage, and enough of it to be a frame, is what comes"}) {
    auto listener = listen_tcp({"127.0.0.1", 0});
    ASSERT_TRUE(listener.ok());
    const auto where = local_address(listener->get());
    auto options = mesh_options(1, 2);
    options.connector.connect_timeout = std::chrono::milliseconds(200);
    const auto mesh = make_tcp_mesh(options);
    const auto theirs = WireWriter().str(where->host).u16(where->port).u16(1).u8(1).take();
    ASSERT_TRUE(mesh->connect({theirs, mesh->address()}).ok());
    std::thread impostor([&] {
      auto fd = accept_tcp(listener->get(), Clock::now() + kLong);
      ASSERT_TRUE(fd.ok());
      say(*fd, answer);
      expect_disconnected(*fd);
    });
    Bytes bytes(*mesh, 10);
    const auto error = error_of([&] {
      bytes.receive(0, 1);
      bytes.wait_received();
    });
    EXPECT_NE(error.find("rank 0"), std::string::npos) << error;
    impostor.join();
  }
}

TEST(AnsweringStrangers, AnotherRankAtAPeersAddressIsNotBelieved) {
  // The ports of ranks 0 and 1 are mixed up.
  Hub addresses(3);
  std::vector<std::thread> threads;
  threads.reserve(3);
  Hub end(3);
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      const auto mesh = make_tcp_mesh(mesh_options(rank, 3));
      auto all = *addresses.exchange(rank, mesh->address(), Clock::now() + kLong);
      std::swap(all[0], all[1]);
      ASSERT_TRUE(mesh->connect(all).ok());
      if (rank == 2) {
        Bytes bytes(*mesh, 10);
        const auto error = error_of([&] {
          bytes.receive(0, 1);
          bytes.wait_received();
        });
        EXPECT_NE(error.find("rank 0 refused us"), std::string::npos) << error;
      }
      EXPECT_TRUE(end.exchange(rank, "", Clock::now() + kLong).ok());
    });
  }
  for (auto& thread : threads) thread.join();
}

// --- with the token, but broken -----------------------------------------------------------------

// Of ten bytes, as the message that has this place among those of a connection.
std::string message_of(std::uint32_t sequence, char what) {
  runtime::MessageHeader header;
  header.sequence = sequence;
  header.slot = 1;
  header.bytes = 10;
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  return bytes.append(header.bytes, what);
}

TEST(BrokenMembers, AMessageThatIsMissingOrComesAgainIsFound) {
  const MeshSockets unprotected(1, 4096, Protection::none);
  for (const std::uint32_t second : {0U, 2U, 7U}) {
    const auto mesh = make_tcp_mesh(mesh_options(0, 2));
    const auto fd = connect_to(port_of(*mesh));
    ASSERT_TRUE(Client{.name = "rank 1"}.authenticate(fd).ok());
    say(fd, message_of(0, 'a'));
    say(fd, message_of(second, 'b'));
    Bytes in(*mesh, 10);
    in.receive(1, 1);
    EXPECT_EQ(in.wait_received(), 1);
    EXPECT_EQ(in.data, std::vector<std::uint8_t>(10, 'a'));
    const auto error = error_of([&in] {
      in.receive(1, 1);
      in.wait_received();
    });
    EXPECT_NE(error.find("rank 1 sent a malformed message on its data connection"),
              std::string::npos)
        << "sequence " << second << ": " << error;
  }
}

// --- with the token, but broken or malicious: the fuzzer ----------------------------------------

// Half of it is right, so that it gets further than to the first check.
std::string bad_messages(std::mt19937& random, RecordCipher* cipher) {
  std::string bytes;
  const auto add_record = [&](std::string record) {
    const std::span<std::byte> raw(reinterpret_cast<std::byte*>(record.data()), record.size());
    bytes += record;
    if (cipher == nullptr) return;
    const auto tag = cipher->seal(raw, raw.data());
    bytes.replace(bytes.size() - record.size(), record.size(), record);
    bytes.append(reinterpret_cast<const char*>(tag.data()), tag.size());
  };
  std::uint32_t sequence = 0;
  for (int i = 0; i < 6; ++i) {
    runtime::MessageHeader header;
    header.sequence = sequence++;
    header.slot = random() % 3;
    header.bytes = random() % 2 == 0 ? 10 : random() % 100;
    switch (random() % 8) {
      case 0:
        header.magic = static_cast<std::uint32_t>(random());
        break;
      case 1:
        header.sequence = static_cast<std::uint32_t>(random());
        break;
      case 2:
        header.bytes = std::uint64_t{1} << (random() % 64);
        break;
      default:
        break;
    }
    add_record({reinterpret_cast<const char*>(&header), sizeof(header)});
    std::string body(header.bytes < 200 ? header.bytes : 50, '\0');
    for (char& byte : body) byte = static_cast<char>(random());
    if (!body.empty()) add_record(body);
  }
  bytes.resize(random() % (bytes.size() + 1));
  return bytes;
}

class TransportFuzz : public ::testing::TestWithParam<Protection> {};
INSTANTIATE_TEST_SUITE_P(Protection, TransportFuzz,
                         ::testing::Values(Protection::none, Protection::integrity,
                                           Protection::encrypted),
                         [](const auto& row) { return std::string(name_of(row.param)); });

TEST_P(TransportFuzz, BytesFromAMemberEndInAValueOrAnError) {
  const MeshSockets sockets(1, 4096, GetParam());
  int values = 0;
  int errors = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto mesh = make_tcp_mesh(mesh_options(0, 2));
    const auto fd = connect_to(port_of(*mesh));
    const auto keys = Client{.name = "rank 1"}.authenticate(fd);
    ASSERT_TRUE(keys.ok());
    std::optional<RecordCipher> cipher;
    if (GetParam() != Protection::none) cipher.emplace(keys->to_send, GetParam());
    const auto bytes = bad_messages(random, cipher ? &*cipher : nullptr);
    std::thread sender([&] {
      for (std::size_t at = 0; at < bytes.size();) {
        const std::size_t part = std::min(bytes.size() - at, random() % 40 + 1);
        say(fd, std::string_view(bytes).substr(at, part));
        at += part;
      }
      ::shutdown(fd.get(), SHUT_WR);
    });
    for (int i = 0; i < 4; ++i) {
      Bytes in(*mesh, 10);
      const auto error = error_of([&] {
        in.receive(1, static_cast<std::uint64_t>(i % 3));
        // A message that claims to be huge and is not expected stays in the kernel.
        in.buffer->waitRecv(std::chrono::milliseconds(100));
      });
      ++(error == "nothing was thrown" ? values : errors);
    }
    sender.join();
  }
  EXPECT_GT(values, 20);
  EXPECT_GT(errors, 20);
}

TEST(TransportFuzz, CorruptedProofsAreDisconnected) {
  on_meshes(2, [](int rank, TcpMesh& mesh) {
    expect_messages_work(rank, mesh, 2);
    if (rank == 0) {
      for (unsigned seed = 0; seed < 500; ++seed) {
        std::mt19937 random(seed);
        HandshakeConnector connector(mesh_token, kData, {"rank 1", 1}, {"rank 0", 1});
        const auto fd = connect_to(port_of(mesh));
        FrameDecoder decoder;
        auto challenge = receive_frame(fd.get(), decoder, Clock::now() + kLong);
        ASSERT_TRUE(challenge.ok());
        auto bytes = *connector.prove(*challenge);
        for (unsigned changes = random() % 4; changes > 0; --changes) {
          bytes[random() % bytes.size()] = static_cast<char>(random());
        }
        bytes.resize(random() % 3 == 0 ? random() % bytes.size() : bytes.size());
        say(fd, bytes);
        ::shutdown(fd.get(), SHUT_WR);
        expect_disconnected(fd);
      }
    }
    expect_messages_work(rank, mesh, 2);
  });
}

}  // namespace
}  // namespace hvd::test
