#include "base/security/tls_psk.h"

#include <gtest/gtest.h>
#include <random>

namespace hvd {
namespace {

Token token(char digit) { return *Token::from_hex(std::string(64, digit)); }

TlsSession session(TlsPsk::Side side, char digit) {
  auto key = TlsPsk::create(side, token(digit));
  EXPECT_TRUE(key.ok()) << key.status().message();
  return *key->session();
}

// Passes bytes between both sides until neither has any, and records all of them.
struct Wire {
  TlsSession client;
  TlsSession server;
  std::string seen = {};
  Status client_status = client.receive({});
  Status server_status = {};

  void settle() {
    for (;;) {
      const std::string to_server = client.take_outgoing();
      const std::string to_client = server.take_outgoing();
      if (to_server.empty() && to_client.empty()) return;
      seen += to_server + to_client;
      if (!to_server.empty() && server_status.ok()) server_status = server.receive(to_server);
      if (!to_client.empty() && client_status.ok()) client_status = client.receive(to_client);
    }
  }
};

TEST(TlsPsk, PeersWithTheSameTokenTalkAndTheWireShowsNothingOfIt) {
  Wire w{session(TlsPsk::Side::client, '1'), session(TlsPsk::Side::server, '1')};
  w.settle();
  ASSERT_TRUE(w.client.established()) << w.client_status.message();
  ASSERT_TRUE(w.server.established()) << w.server_status.message();
  const std::string said = "what nobody else may read";
  ASSERT_TRUE(w.client.send(said).ok());
  ASSERT_TRUE(w.server.send(std::string(300'000, 'x')).ok());
  w.settle();
  EXPECT_EQ(w.server.take_received(), said);
  EXPECT_EQ(w.client.take_received(), std::string(300'000, 'x'));
  EXPECT_EQ(w.seen.find(said), std::string::npos);
  EXPECT_EQ(w.seen.find("xxxx"), std::string::npos);
  EXPECT_EQ(w.seen.find(std::string(token('1').bytes())), std::string::npos);
}

TEST(TlsPsk, TheEndOfASessionIsAnnounced) {
  Wire w{session(TlsPsk::Side::client, '1'), session(TlsPsk::Side::server, '1')};
  w.settle();
  EXPECT_FALSE(w.server.is_closed());
  w.client.close();
  w.settle();
  EXPECT_TRUE(w.server.is_closed());
  EXPECT_TRUE(w.server_status.ok()) << w.server_status.message();
}

TEST(TlsPsk, AnotherTokenIsNoticedOnBothSides) {
  Wire w{session(TlsPsk::Side::client, '1'), session(TlsPsk::Side::server, '2')};
  w.settle();
  EXPECT_FALSE(w.client.established());
  EXPECT_FALSE(w.server.established());
  EXPECT_EQ(w.client_status.code(), Code::unauthenticated) << w.client_status.message();
  EXPECT_EQ(w.server_status.code(), Code::unauthenticated) << w.server_status.message();
  EXPECT_FALSE(w.client.send("x").ok());
}

TEST(TlsPsk, BytesThatAreNotTlsAreRefused) {
  for (const std::string text : {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n",
                                 "\x16\x03\x01\xff\xff\xff"}) {
    auto server = session(TlsPsk::Side::server, '1');
    Status status = server.receive(text);
    for (int more = 0; status.ok() && more < 100; ++more) {
      status = server.receive(std::string(1000, 'x'));
    }
    EXPECT_EQ(status.code(), Code::data_loss) << text << ": " << status.message();
    EXPECT_FALSE(server.established());
    EXPECT_FALSE(server.receive("more").ok());
  }
}

TEST(TlsPsk, AChangedByteEndsTheSession) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    Wire w{session(TlsPsk::Side::client, '1'), session(TlsPsk::Side::server, '1')};
    w.settle();
    ASSERT_TRUE(w.client.send("something that matters").ok());
    std::string bytes = w.client.take_outgoing();
    bytes.at(random() % bytes.size()) ^= static_cast<char>(1U << (random() % 8));
    const Status status = w.server.receive(bytes);
    // The header may announce a longer record than was sent, which the session then waits for.
    EXPECT_EQ(w.server.take_received(), "") << status.message();
  }
}

TEST(TlsPsk, RubbishInsteadOfAHelloNeverEstablishesAnything) {
  std::mt19937 random(6);
  auto client = session(TlsPsk::Side::client, '1');
  ASSERT_TRUE(client.receive({}).ok());
  const std::string hello = client.take_outgoing();
  for (int round = 0; round < 500; ++round) {
    auto server = session(TlsPsk::Side::server, '1');
    std::string bytes = hello;
    for (int change = 0; change < 3; ++change) {
      bytes.at(random() % bytes.size()) = static_cast<char>(random());
    }
    bytes.resize(bytes.size() - random() % 20);
    static_cast<void>(server.receive(bytes));
    EXPECT_FALSE(server.established());
  }
}

}  // namespace
}  // namespace hvd
