#include "base/security/tls_psk.h"

#include <gtest/gtest.h>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace hvd {
namespace {

Token token(char digit) { return *Token::from_hex(std::string(64, digit)); }

enum class Side { client, server };

TlsSession session(Side side, char digit) {
  auto key =
      side == Side::client ? TlsPsk::client({token(digit), {}}) : TlsPsk::server(token(digit));
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
  Wire w{session(Side::client, '1'), session(Side::server, '1')};
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
  Wire w{session(Side::client, '1'), session(Side::server, '1')};
  w.settle();
  EXPECT_FALSE(w.server.is_closed());
  w.client.close();
  w.settle();
  EXPECT_TRUE(w.server.is_closed());
  EXPECT_TRUE(w.server_status.ok()) << w.server_status.message();
}

TEST(TlsPsk, AnotherTokenIsNoticedOnBothSides) {
  Wire w{session(Side::client, '1'), session(Side::server, '2')};
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
    auto server = session(Side::server, '1');
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
    Wire w{session(Side::client, '1'), session(Side::server, '1')};
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
  auto client = session(Side::client, '1');
  ASSERT_TRUE(client.receive({}).ok());
  const std::string hello = client.take_outgoing();
  for (int round = 0; round < 500; ++round) {
    auto server = session(Side::server, '1');
    std::string bytes = hello;
    for (int change = 0; change < 3; ++change) {
      bytes.at(random() % bytes.size()) = static_cast<char>(random());
    }
    bytes.resize(bytes.size() - random() % 20);
    static_cast<void>(server.receive(bytes));
    EXPECT_FALSE(server.established());
  }
}

// A server that has the key '1' without a name, and the key '2' under the name "7".
Wire wire_of(const PskKey& key) {
  const auto client = TlsPsk::client(key);
  const auto server = TlsPsk::server(token('1'), [](std::string_view id) {
    return id == "7" ? std::optional(token('2')) : std::nullopt;
  });
  return {*client->session(), *server->session()};
}

TEST(TlsPsk, AServerTellsTheKeysOfItsClientsApart) {
  for (const auto& key : {PskKey{token('1'), ""}, PskKey{token('2'), "7"}}) {
    Wire w = wire_of(key);
    w.settle();
    ASSERT_TRUE(w.server.established()) << w.server_status.message();
    ASSERT_TRUE(w.client.established()) << w.client_status.message();
    EXPECT_EQ(w.server.key_id(), key.id);
  }
}

TEST(TlsPsk, AKeyUnderAnotherNameOpensNothing) {
  const std::string long_name(33, '7');
  for (const auto& key : {PskKey{token('1'), "7"}, PskKey{token('2'), ""}, PskKey{token('2'), "8"},
                          PskKey{token('2'), long_name}, PskKey{token('2'), "7 "}}) {
    Wire w = wire_of(key);
    w.settle();
    EXPECT_FALSE(w.server.established()) << key.id;
    EXPECT_EQ(w.server_status.code(), Code::unauthenticated) << w.server_status.message();
    EXPECT_EQ(w.client_status.code(), Code::unauthenticated) << w.client_status.message();
  }
}

TEST(PskKey, ComesBackFromItsText) {
  for (const auto& key :
       {PskKey{token('a'), ""}, PskKey{token('b'), "7"}, PskKey{token('c'), "X9"}}) {
    const auto again = psk_key_from_text(to_text(key));
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    EXPECT_EQ(again->id, key.id);
    EXPECT_EQ(again->secret.bytes(), key.secret.bytes());
  }
  EXPECT_EQ(to_text({token('a'), "7"}), "hvd-join-7-" + std::string(64, 'a'));
}

TEST(PskKey, AMalformedTextIsRefused) {
  const std::string digits(64, 'a');
  for (const std::string& text : std::vector<std::string>{
           std::string(), digits + "a", "hvd-join-" + digits, "hvd-join--" + digits,
           "hvd-join-7" + digits, "hvd-join-7-", "hvd-join-7-" + digits + "a",
           "hvd-join- -" + digits, "hvd-join-" + std::string(33, '7') + "-" + digits, "7-" + digits,
           "x" + digits}) {
    const auto key = psk_key_from_text(text);
    EXPECT_EQ(key.status().code(), Code::invalid_argument) << text;
    EXPECT_FALSE(key.status().message().empty());
  }
}

}  // namespace
}  // namespace hvd
