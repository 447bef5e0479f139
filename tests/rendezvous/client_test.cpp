#include "rendezvous/client.h"

#include <functional>
#include <future>
#include <gtest/gtest.h>
#include <thread>

#include "base/text.h"
#include "tests/rendezvous/server_fixture.h"
#include "tests/support/process.h"

namespace hvd::rendezvous::test {
namespace {

using hvd::test::kGenerous;
using std::chrono::milliseconds;

TimePoint soon() { return Clock::now() + milliseconds(50); }
TimePoint much_later() { return Clock::now() + kGenerous; }

TEST(Client, PutsGetsErasesAndComparesUnderAnyName) {
  RunningServer server;
  const auto client = server.client();
  const std::string scope("s/ %\0\xff", 6);
  const std::string key = "host:0 ?&=";
  const auto first = client->put(scope, key, "one");
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  const auto got = client->get(scope, key);
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  EXPECT_EQ(got->value, "one");
  EXPECT_EQ(got->version, *first);
  EXPECT_EQ(client->compare_and_set(scope, key, "two", 0).status().code(), Code::already_exists);
  const auto second = client->compare_and_set(scope, key, "two", *first);
  ASSERT_TRUE(second.ok()) << second.status().to_string();
  EXPECT_GT(*second, *first);
  ASSERT_TRUE(client->erase(scope, key).ok());
  const auto gone = client->get(scope, key);
  EXPECT_EQ(gone.status().code(), Code::not_found);
  EXPECT_NE(gone.status().message().find("host:0"), std::string::npos);
}

TEST(Client, GoesWithAServerThatMoves) {
  RunningServer first;
  RunningServer second;
  auto options = first.client_options();
  SocketAddress where = first.address();
  options.server = [&where] { return where; };
  Client client(options, first.token());
  ASSERT_TRUE(client.put("s", "k", "v").ok());
  where = second.address();
  const auto moved = client.put("s", "k", "v");
  EXPECT_EQ(moved.status().code(), Code::unauthenticated) << "it has another key";
  EXPECT_NE(moved.status().message().find(second.address().to_string()), std::string::npos)
      << moved.status().to_string();
  where = first.address();
  EXPECT_EQ(client.get("s", "k")->value, "v");
}

TEST(Client, CarriesAValueOfManyMegabytesAndOneOfNone) {
  RunningServer server;
  const auto client = server.client();
  std::string big(std::size_t{15} << 20, '\0');
  for (std::size_t i = 0; i < big.size(); ++i) big[i] = static_cast<char>(i * 2'654'435'761u >> 13);
  ASSERT_TRUE(client->put("s", "big", big).ok());
  EXPECT_EQ(client->get("s", "big")->value, big);
  ASSERT_TRUE(client->put("s", "none", "").ok());
  EXPECT_EQ(client->get("s", "none")->value, "");
}

TEST(Client, SaysWhichLimitItReached) {
  RunningServer server;
  const auto client = server.client();
  const auto big = client->put("s", "k", std::string(std::size_t{40} << 20, 'x'));
  EXPECT_EQ(big.status().code(), Code::resource_exhausted) << big.status().to_string();
  EXPECT_NE(big.status().message().find("16,777,216"), std::string::npos);
  EXPECT_EQ(client->put("s", std::string(600, 'k'), "v").status().code(), Code::invalid_argument);
  EXPECT_TRUE(client->put("s", "k", "v").ok());
}

TEST(Client, WaitsUntilAKeyIsWritten) {
  RunningServer server;
  auto waiting =
      std::async(std::launch::async, [&] { return server.client()->wait("s", "k", much_later()); });
  const auto client = server.client();
  const auto version = client->put("s", "k", "value");
  const auto got = waiting.get();
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  EXPECT_EQ(got->value, "value");
  EXPECT_EQ(got->version, *version);
  EXPECT_EQ(client->wait("s", "k", soon(), got->version).status().code(), Code::deadline_exceeded);
  ASSERT_TRUE(client->put("s", "k", "newer").ok());
  EXPECT_EQ(client->wait("s", "k", much_later(), got->version)->value, "newer");
}

TEST(Client, EndsAWaitAtItsDeadline) {
  RunningServer server;
  const auto client = server.client();
  const auto late = client->wait("s", "k", soon());
  EXPECT_EQ(late.status().code(), Code::deadline_exceeded) << late.status().to_string();
  EXPECT_NE(late.status().message().find("/s/k"), std::string::npos);
  // A deadline that has passed asks once.
  ASSERT_TRUE(client->put("s", "k", "v").ok());
  EXPECT_TRUE(client->wait("s", "k", Clock::now() - milliseconds(1)).ok());
}

TEST(Client, ReadsAndWritesManyKeysAndNamesThoseThatAreMissing) {
  RunningServer server;
  const auto client = server.client();
  ASSERT_TRUE(client->put_many("s", {{"a", "1"}, {"b", "2"}}).ok());
  const auto late = client->wait_many("s", {"a", "c", "b", "d"}, soon());
  EXPECT_EQ(late.status().code(), Code::deadline_exceeded);
  EXPECT_NE(late.status().message().find("c, d"), std::string::npos) << late.status().message();
  auto waiting = std::async(std::launch::async, [&] {
    return server.client()->wait_many("s", {"a", "b", "c", "d"}, much_later());
  });
  ASSERT_TRUE(client->put("s", "d", "4").ok());
  ASSERT_TRUE(client->put("s", "c", "3").ok());
  const auto all = waiting.get();
  ASSERT_TRUE(all.ok()) << all.status().to_string();
  EXPECT_EQ(*all,
            (std::map<std::string, std::string>{{"a", "1"}, {"b", "2"}, {"c", "3"}, {"d", "4"}}));
}

TEST(Client, SaysWhyAWaitForManyKeysIsRefused) {
  RunningServer server;
  const auto refused = server.client()->wait_many(std::string(600, 's'), {"a"}, much_later());
  EXPECT_EQ(refused.status().code(), Code::invalid_argument) << refused.status().to_string();
  EXPECT_NE(refused.status().message().find("refused: "), std::string::npos)
      << refused.status().message();
}

TEST(Client, IsCancelledFromAnotherThread) {
  RunningServer server;
  const auto client = server.client();
  auto waiting = std::async(std::launch::async, [&] { return client->wait("s", "k", kNever); });
  // Whether it is before, in or after the request: the call ends.
  client->cancel();
  EXPECT_EQ(waiting.get().status().code(), Code::aborted);
  EXPECT_EQ(client->get("s", "k").status().code(), Code::aborted);
}

TEST(Client, IsCancelledWhileItWaitsAtTheServer) {
  RunningServer server;
  const auto client = server.client();
  ASSERT_TRUE(client->put("s", "there", "v").ok());
  std::promise<void> begun;
  auto waiting = std::async(std::launch::async, [&] {
    begun.set_value();
    return client->wait("s", "k", kNever);
  });
  begun.get_future().wait();
  EXPECT_EQ(waiting.wait_for(milliseconds(20)), std::future_status::timeout);
  client->cancel();
  EXPECT_EQ(waiting.get().status().code(), Code::aborted);
}

TEST(Client, RefusesToWorkWithAnotherToken) {
  RunningServer server;
  Client stranger(server.client_options(), Token::random());
  const auto got = stranger.get("s", "k");
  EXPECT_EQ(got.status().code(), Code::unauthenticated);
  EXPECT_NE(got.status().message().find("another token"), std::string::npos);
}

TEST(Client, GivesUpAtItsDeadlineWhenNobodyListens) {
  ClientOptions options;
  {
    const auto listener = listen_tcp({"127.0.0.1", 0});
    options.port = local_address(listener->get())->port;
  }
  options.host = "127.0.0.1";
  options.request_timeout = milliseconds(60);
  Client client(options, Token::random());
  const auto got = client.get("s", "k");
  EXPECT_EQ(got.status().code(), Code::unavailable);
  EXPECT_NE(got.status().message().find(cat("127.0.0.1:", options.port)), std::string::npos);
  EXPECT_EQ(client.wait("s", "k", soon()).status().code(), Code::unavailable);
  options.host = "localhost";
  EXPECT_EQ(Client(options, Token::random()).get("s", "k").status().code(), Code::invalid_argument);
}

TEST(Client, ComesBackWhenItsConnectionWasClosedAsIdle) {
  ServerOptions options;
  options.limits.idle_timeout = milliseconds(20);
  RunningServer server(options);
  const auto client = server.client();
  ASSERT_TRUE(client->put("s", "k", "v").ok());
  RawConnection witness(server.address());  // younger than the client's
  EXPECT_TRUE(witness.closed_by_server());
  EXPECT_EQ(client->get("s", "k")->value, "v");
}

// Plays the server's part by hand, to give answers that a real one never gives.
class Impostor {
 public:
  // Made of the request's head.
  using Answer = std::function<std::string(const std::string& request)>;

  explicit Impostor(const std::vector<std::string>& answers) : Impostor(as_they_are(answers)) {}
  explicit Impostor(std::vector<Answer> answers)
      : listener_(std::move(*listen_tcp({"127.0.0.1", 0}))),
        thread_([this, answers = std::move(answers)] {
          for (const auto& answer : answers) {
            auto socket = accept_tcp(listener_.get(), Clock::now() + kGenerous);
            if (!socket.ok()) return;
            std::string request;
            while (request.find("\r\n\r\n") == std::string::npos) {
              char byte = 0;
              if (::read(socket->get(), &byte, 1) != 1) return;
              request += byte;
            }
            if (!send_all(socket->get(), answer(request), Clock::now() + kGenerous).ok()) return;
          }
        }) {}
  ~Impostor() { thread_.join(); }

  ClientOptions options() const {
    ClientOptions options;
    options.host = "127.0.0.1";
    options.port = local_address(listener_.get())->port;
    return options;
  }

 private:
  static std::vector<Answer> as_they_are(const std::vector<std::string>& answers) {
    std::vector<Answer> result;
    for (const auto& answer : answers) {
      result.emplace_back([answer](const std::string&) { return answer; });
    }
    return result;
  }

  UniqueFd listener_;
  std::thread thread_;
};

// A server whose clock is an hour ahead of the client's, and by whose answers another client has
// written the same value: that is not the caller's doing.
TEST(Client, TakesTheServersTimeAndDoesNotCountTheRefusalAsAnAttempt) {
  constexpr std::int64_t kHour = 3'600'000;
  const Token token = Token::random();
  std::vector<std::int64_t> times;
  const auto answer = [&](const SignedAnswer& signed_answer, const std::string& body) {
    return [&, signed_answer, body](const std::string& request) {
      const auto words = split(request.substr(request.find("HVD1 ")), ' ');
      times.push_back(std::stoll(words.at(3)));
      const RequestId id{std::stoull(words.at(1), nullptr, 16), std::stoull(words.at(2))};
      SignedAnswer whole = signed_answer;
      whole.body_digest = sha256(body);
      std::string proof;
      Verifier(token, 0).prove(id, whole, proof);
      return cat("HTTP/1.1 ", whole.status, " x\r\nContent-Length: ", body.size(),
                 "\r\nConnection: close\r\n",
                 whole.version != 0 ? cat("Hvd-Version: ", whole.version, "\r\n") : "",
                 whole.time != 0 ? cat("Hvd-Time: ", whole.time, "\r\n") : "", "Hvd-Proof: ", proof,
                 "\r\n\r\n", body);
    };
  };
  const std::int64_t server_time = unix_now() + kHour;
  Status result;
  {
    // The third would be asked for by a client that takes the conflict for its own write.
    Impostor impostor({answer({401, 0, server_time, {}}, ""), answer({412, 0, 0, {}}, ""),
                       answer({200, 9, 0, {}}, "ours")});
    result = Client(impostor.options(), token).compare_and_set("s", "k", "ours", 3).status();
    const auto last = connect_tcp({"127.0.0.1", impostor.options().port}, much_later());
  }
  ASSERT_EQ(times.size(), 2U);
  EXPECT_LT(std::abs(times[1] - server_time), 60'000) << "it signs by the server's clock";
  EXPECT_EQ(result.code(), Code::already_exists) << result.to_string();
}

TEST(Client, RefusesServersThatDoNotProveTheToken) {
  const std::string proof(64, 'a');
  Impostor impostor({"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nHvd-Version: 1\r\n\r\nfalse",
                     "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nHvd-Version: 1\r\nHvd-Proof: " +
                         proof + "\r\n\r\nfalse",
                     "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
                     "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nHvd-Time: 5\r\n\r\n",
                     "SSH-2.0-OpenSSH_9.2\r\n\r\n",
                     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"});
  Client client(impostor.options(), Token::random());
  EXPECT_EQ(client.get("s", "k").status().code(), Code::unauthenticated);
  EXPECT_EQ(client.get("s", "k").status().code(), Code::data_loss);
  EXPECT_EQ(client.get("s", "k").status().code(), Code::unauthenticated);
  EXPECT_EQ(client.get("s", "k").status().code(), Code::unauthenticated);
  EXPECT_EQ(client.get("s", "k").status().code(), Code::data_loss);
  EXPECT_EQ(client.get("s", "k").status().code(), Code::data_loss);
}

}  // namespace
}  // namespace hvd::rendezvous::test
