// Access to the metrics of a job over the network.
#include "driver/status/metrics_server.h"

#include <algorithm>
#include <cctype>
#include <gtest/gtest.h>
#include <thread>

#include "base/text.h"
#include "tests/rendezvous/server_fixture.h"
#include "tests/support/silent_crowd.h"

namespace hvd::driver {
namespace {

using rendezvous::test::RawAnswer;
using rendezvous::test::RawConnection;

constexpr const char* kMetrics = "# metrics\n";

// A server on a thread of its own, at a loopback address.
class MetricsServerTest : public testing::Test {
 protected:
  void SetUp() override { begin({}); }
  void TearDown() override { end(); }

  void begin(HttpLimits limits) {
    auto listening = *listen_tcp({"127.0.0.1", 0});
    address_ = *local_address(listening.get());
    server_ = std::make_unique<MetricsServer>(
        *io_, token_,
        [] {
          return HttpReply{200, kMetrics, "text/plain"};
        },
        limits);
    ASSERT_TRUE(server_->start(std::move(listening)).ok());
    thread_ = std::thread([io = io_.get()] { io->run(); });
  }
  void end() {
    io_->stop();
    if (thread_.joinable()) thread_.join();
    server_.reset();
    io_ = std::make_unique<boost::asio::io_context>(1);
  }

  std::string token() const { return to_hex(token_.bytes()); }
  RawAnswer ask(const std::string& line, const std::string& fields) const {
    RawConnection connection(address_);
    connection.send(cat(line, " HTTP/1.1\r\nHost: hvdrun\r\n", fields, "\r\n"));
    return connection.receive();
  }
  RawAnswer scrape() const {
    return ask("GET /metrics", cat("Authorization: Bearer ", token(), "\r\n"));
  }

  const Token token_ = Token::random();
  SocketAddress address_;
  std::unique_ptr<boost::asio::io_context> io_ = std::make_unique<boost::asio::io_context>(1);
  std::unique_ptr<MetricsServer> server_;
  std::thread thread_;
};

TEST_F(MetricsServerTest, TheTokenGetsTheMetrics) {
  const RawAnswer answer = scrape();
  EXPECT_EQ(answer.status, 200) << answer.head;
  EXPECT_EQ(answer.body, kMetrics);
  EXPECT_EQ(answer.field("Content-Type"), "text/plain");
  EXPECT_EQ(answer.field("Connection"), "close");

  std::string upper = token();
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char digit) { return static_cast<char>(std::toupper(digit)); });
  EXPECT_EQ(ask("GET /metrics", cat("authorization: bearer ", upper, "\r\n")).status, 200);
}

TEST_F(MetricsServerTest, EverybodyElseGets401AndNothingElse) {
  const std::string other = to_hex(Token::random().bytes());
  const std::string right = cat("Authorization: Bearer ", token(), "\r\n");
  const std::vector<std::string> fields{
      "",
      "Authorization:\r\n",
      "Authorization: Bearer\r\n",
      "Authorization: Bearer \r\n",
      cat("Authorization: Bearer ", other, "\r\n"),
      cat("Authorization: Bearer ", token().substr(0, 62), "\r\n"),
      cat("Authorization: Bearer ", token(), "00\r\n"),
      cat("Authorization: Basic ", token(), "\r\n"),
      cat("Authorization: ", token(), "\r\n"),
      cat("Cookie: ", token(), "\r\n"),
      right + right,
      right + cat("Authorization: Bearer ", other, "\r\n"),
  };
  for (const auto& field : fields) {
    for (const std::string line : {"GET /metrics", "GET /", "POST /metrics", "GET /status"}) {
      const RawAnswer answer = ask(line, field);
      EXPECT_EQ(answer.status, 401) << line << " " << field;
      EXPECT_EQ(answer.field("WWW-Authenticate"), "Bearer");
      EXPECT_EQ(answer.body, "a bearer token is needed\n");
    }
  }
  EXPECT_EQ(ask(cat("GET /metrics?token=", token()), "").status, 401);
}

TEST_F(MetricsServerTest, NothingElseIsServedWithTheToken) {
  const std::string right = cat("Authorization: Bearer ", token(), "\r\n");
  EXPECT_EQ(ask("GET /", right).status, 404);
  EXPECT_EQ(ask("GET /status", right).status, 404);
  EXPECT_EQ(ask("POST /stop", right).status, 404);
  const RawAnswer refused = ask("POST /metrics", right + "Content-Length: 0\r\n");
  EXPECT_EQ(refused.status, 405);
  EXPECT_NE(refused.head.find("\r\nAllow: GET, HEAD\r\n"), std::string::npos) << refused.head;
}

TEST_F(MetricsServerTest, AQueryAndTheMethodHeadAreServed) {
  const std::string right = cat("Authorization: Bearer ", token(), "\r\n");
  EXPECT_EQ(ask("GET /metrics?x=1", right).body, kMetrics);
  for (const auto& [target, fields, status] :
       {std::tuple{"/metrics", right, 200}, std::tuple{"/none", right, 404},
        std::tuple{"/metrics", std::string(), 401}}) {
    RawConnection connection(address_);
    connection.send(cat("HEAD ", target, " HTTP/1.1\r\nHost: hvdrun\r\n", fields, "\r\n"));
    const std::string answer = connection.receive_all();
    EXPECT_TRUE(answer.starts_with(cat("HTTP/1.1 ", status, " "))) << answer;
    EXPECT_TRUE(answer.ends_with("\r\n\r\n")) << answer;
  }
}

TEST_F(MetricsServerTest, RubbishHarmsNothing) {
  const std::vector<std::string> texts{
      "",
      std::string(100'000, 'x'),
      std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11),  // TLS
      "GET /metrics HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
      cat("GET /metrics HTTP/1.1\r\nX: ", std::string(20'000, 'x'), "\r\n\r\n"),
      "GET /metrics HTTP/9.9\r\n\r\n",
  };
  for (const auto& text : texts) {
    RawConnection connection(address_);
    connection.try_send(text);
    connection.half_close();
    connection.receive_all();
  }
  EXPECT_EQ(scrape().status, 200);
}

TEST_F(MetricsServerTest, ASilentConnectionIsClosedWhenItsTimeIsUp) {
  end();
  begin({.time = std::chrono::milliseconds(200)});
  RawConnection silent(address_);
  RawConnection slow(address_);
  slow.send("GET /metrics HTTP/1.1\r\n");
  EXPECT_TRUE(silent.closed_by_server());
  EXPECT_TRUE(slow.closed_by_server());
}

TEST_F(MetricsServerTest, ACrowdThatSaysNothingDrivesOutItself) {
  const test::SilentCrowd crowd(address_, 200, "127.0.0.2");
  ASSERT_TRUE(crowd.wait_for(500));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(scrape().status, 200);
}

}  // namespace
}  // namespace hvd::driver
