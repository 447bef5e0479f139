// Clients that misbehave. After each, and meanwhile, others are served.
#include <gtest/gtest.h>
#include <poll.h>
#include <random>

#include "base/text.h"
#include "tests/rendezvous/server_fixture.h"
#include "tests/support/process.h"

namespace hvd::rendezvous::test {
namespace {

ServerOptions impatient() {
  ServerOptions options;
  options.limits.idle_timeout = std::chrono::milliseconds(200);
  options.limits.receive_timeout = std::chrono::milliseconds(200);
  return options;
}

void expect_serves(const RunningServer& server) {
  const auto client = server.client();
  ASSERT_TRUE(client->put("health", "k", "v").ok());
  const auto value = client->get("health", "k");
  ASSERT_TRUE(value.ok()) << value.status().to_string();
  EXPECT_EQ(value->value, "v");
}

TEST(HostileClients, SendRandomBytes) {
  RunningServer server;
  std::mt19937 random(4711);  // NOLINT(bugprone-random-generator-seed): the same bytes every time
  const std::string start = "GET /s/k HTTP/1.1\r\nAuthorization: HVD1 ";
  int answered = 0;
  for (int i = 0; i < 10'000; ++i) {
    std::string bytes(random() % 200, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    if (i % 4 == 1) bytes.insert(0, start.substr(0, random() % (start.size() + 1)));
    if (i % 4 == 2) bytes += "\r\n\r\n";
    RawConnection connection(server.address());
    connection.try_send(bytes);
    connection.half_close();
    const std::string all = connection.receive_all();
    if (all.empty()) continue;  // it never became a request
    ++answered;
    ASSERT_TRUE(all.starts_with("HTTP/1.1 4")) << all;
  }
  EXPECT_GT(answered, 1'000);
  expect_serves(server);
}

TEST(HostileClients, MutateASignedRequest) {
  RunningServer server;
  std::mt19937 random(4712);  // NOLINT(bugprone-random-generator-seed)
  Signer signer(server.token(), 1);
  for (int i = 0; i < 2'000; ++i) {
    std::string bytes = signed_request(signer, "PUT", "/s/k", "value");
    const std::size_t at = random() % bytes.size();
    bytes[at] = static_cast<char>(bytes[at] ^ static_cast<char>(1 + random() % 255));
    RawConnection connection(server.address());
    connection.try_send(bytes);
    connection.half_close();
    connection.receive_all();
  }
  expect_serves(server);
}

TEST(HostileClients, SendTheirHeaderTooSlowly) {
  RunningServer server(impatient());
  RawConnection slow(server.address());
  slow.send("GET /s/k HTT");
  expect_serves(server);
  EXPECT_EQ(slow.receive().status, 408);
  EXPECT_TRUE(slow.closed_by_server());
}

TEST(HostileClients, SendTheirBodyTooSlowly) {
  RunningServer server(impatient());
  Signer signer(server.token(), 1);
  const std::string put = signed_request(signer, "PUT", "/s/k", "value");
  RawConnection slow(server.address());
  slow.send(std::string_view(put).substr(0, put.size() - 1));
  expect_serves(server);
  const auto late = slow.receive();
  EXPECT_EQ(late.status, 408);
  EXPECT_FALSE(late.field("Hvd-Proof").empty());
  EXPECT_EQ(server.client()->get("s", "k").status().code(), Code::not_found);
}

TEST(HostileClients, StayIdle) {
  RunningServer server(impatient());
  RawConnection idle(server.address());
  EXPECT_TRUE(idle.closed_by_server());
  expect_serves(server);
}

TEST(HostileClients, DoNotReadWhatTheyAskFor) {
  ServerOptions options = impatient();
  RunningServer server(options);
  ASSERT_TRUE(server.client()->put("s", "big", std::string(std::size_t{8} << 20, 'x')).ok());
  Signer signer(server.token(), 1);
  RawConnection deaf(server.address());
  for (int i = 0; i < 4; ++i) deaf.send(signed_request(signer, "GET", "/s/big"));
  expect_serves(server);
}

TEST(HostileClients, CloseTheirHalfAndStillGetTheirAnswer) {
  RunningServer server;
  Signer signer(server.token(), 1);
  RawConnection half(server.address());
  half.send(signed_request(signer, "PUT", "/s/k", "value") + signed_request(signer, "GET", "/s/k"));
  half.half_close();
  EXPECT_EQ(half.receive().status, 200);
  EXPECT_EQ(half.receive().body, "value");
  EXPECT_TRUE(half.closed_by_server());
}

TEST(HostileClients, LeaveWhileTheyWait) {
  RunningServer server;
  Signer signer(server.token(), 1);
  for (int i = 0; i < 50; ++i) {
    RawConnection leaver(server.address());
    leaver.send(signed_request(signer, "GET", "/s/k?wait=600"));
    if (i % 2 == 0) leaver.reset();
  }
  RawConnection half(server.address());
  half.send(signed_request(signer, "GET", "/s/k?wait=600"));
  half.half_close();
  // A client that cannot be told from a dead one is not waited for.
  EXPECT_TRUE(half.closed_by_server());
  expect_serves(server);
  ASSERT_TRUE(server.client()->put("s", "k", "value").ok());
}

TEST(HostileClients, AnnounceAGigabyte) {
  RunningServer server;
  RawConnection client(server.address());
  client.send("PUT /s/k HTTP/1.1\r\nContent-Length: 1073741824\r\n\r\n");
  const auto answer = client.receive();
  EXPECT_EQ(answer.status, 413);
  EXPECT_NE(answer.body.find("1,073,741,824"), std::string::npos);
  client.half_close();
  EXPECT_TRUE(client.closed_by_server());
  RawConnection sender(server.address());
  sender.send("PUT /s/k HTTP/1.1\r\nContent-Length: 1073741824\r\n\r\n");
  const std::string megabyte(std::size_t{1} << 20, 'x');
  bool taken = true;
  for (int i = 0; i < 1'024 && taken; ++i) taken = sender.try_send(megabyte);
  EXPECT_FALSE(taken);  // it did not read it all
  expect_serves(server);
}

TEST(HostileClients, ComeInTooGreatNumbers) {
  ServerOptions options;
  options.limits.max_connections = 3;
  RunningServer server(options);
  Signer signer(server.token(), 1);
  std::vector<std::unique_ptr<RawConnection>> crowd;
  for (int i = 0; i < 3; ++i) {
    crowd.push_back(std::make_unique<RawConnection>(server.address()));
    crowd.back()->send(signed_request(signer, "GET", "/s/k"));
    EXPECT_EQ(crowd.back()->receive().status, 404);
  }
  RawConnection one_more(server.address());
  const auto refused = one_more.receive();
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.body.find("too many connections"), std::string::npos);
  crowd[0]->send(signed_request(signer, "GET", "/s/k"));
  EXPECT_EQ(crowd[0]->receive().status, 404);
  // Room again as soon as somebody leaves; a client comes back by itself until then.
  crowd.clear();
  expect_serves(server);
}

TEST(HostileClients, DisturbNobodyWhenTheServerStops) {
  RunningServer server;
  Signer signer(server.token(), 1);
  RawConnection waiting(server.address());
  RawConnection sending(server.address());
  waiting.send(signed_request(signer, "GET", "/s/k?wait=600"));
  sending.send("PUT /s/k HTTP/1.1\r\nContent-Le");
  expect_serves(server);
  // The fixture's destructor returns only when nothing is left.
}

}  // namespace
}  // namespace hvd::rendezvous::test
