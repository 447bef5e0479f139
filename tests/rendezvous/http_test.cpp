// The protocol as docs/internals/rendezvous.md promises it, byte by byte over real sockets.
#include <gtest/gtest.h>

#include "base/text.h"
#include "rendezvous/requests.h"
#include "tests/rendezvous/server_fixture.h"

namespace hvd::rendezvous::test {
namespace {

ServerOptions small_options() {
  ServerOptions options;
  options.limits.max_key = 32;
  options.limits.max_scope = 32;
  options.limits.max_value = 1'000;
  options.limits.max_bulk = 5'000;
  options.limits.max_scopes = 3;
  options.limits.max_total = 20 * kKeyOverhead;
  options.limits.max_header = 1'024;
  options.limits.max_wait = std::chrono::seconds(60);
  return options;
}

class Http : public testing::Test {
 protected:
  RawAnswer ask(std::string_view method, std::string_view target, std::string_view body = "") {
    connection_.send(signed_request(signer_, method, target, body));
    return connection_.receive();
  }
  // Of a request that the server closes upon.
  RawAnswer ask_raw(std::string_view bytes) {
    RawConnection connection(server_.address());
    connection.send(bytes);
    auto answer = connection.receive();
    EXPECT_TRUE(connection.closed_by_server());
    return answer;
  }

  RunningServer server_{small_options()};
  Signer signer_{server_.token(), 1};
  RawConnection connection_{server_.address()};
};

TEST_F(Http, PutsGetsAndDeletesOnOneConnection) {
  const auto put = ask("PUT", "/s/host:0", "value");
  EXPECT_EQ(put.status, 200);
  EXPECT_FALSE(put.field("Hvd-Version").empty());
  const auto get = ask("GET", "/s/host:0");
  EXPECT_EQ(get.status, 200);
  EXPECT_EQ(get.body, "value");
  EXPECT_EQ(get.field("Hvd-Version"), put.field("Hvd-Version"));
  EXPECT_EQ(ask("GET", "/s/other").status, 404);
  EXPECT_EQ(ask("DELETE", "/s/host:0").status, 200);
  EXPECT_EQ(ask("DELETE", "/s/host:0").status, 200);
  const auto gone = ask("GET", "/s/host:0");
  EXPECT_EQ(gone.status, 404);
  EXPECT_EQ(gone.body, "there is no /s/host:0\n");
}

TEST_F(Http, ProvesItsAnswers) {
  const std::string digest = body_digest_text("value");
  const auto signature = signer_.sign({"PUT", "/s/k", digest}, unix_now());
  connection_.send("PUT /s/k HTTP/1.1\r\nAuthorization: " + signature.authorization +
                   "\r\nContent-Length: 5\r\n\r\nvalue");
  const auto answer = connection_.receive();
  ASSERT_EQ(answer.status, 200);
  const auto version = parse_number<std::uint64_t>(answer.field("Hvd-Version")).value_or(0);
  const SignedAnswer claim{200, version, 0, sha256(answer.body)};
  EXPECT_TRUE(signer_.verify(signature.id, claim, answer.field("Hvd-Proof")));
}

TEST_F(Http, KeepsEmptyAndBinaryValues) {
  EXPECT_EQ(ask("PUT", "/s/empty", "").status, 200);
  const auto empty = ask("GET", "/s/empty");
  EXPECT_EQ(empty.status, 200);
  EXPECT_EQ(empty.body, "");
  const std::string binary("\0\r\n\r\n\xff", 6);
  EXPECT_EQ(ask("PUT", "/s/b", binary).status, 200);
  EXPECT_EQ(ask("GET", "/s/b").body, binary);
}

TEST_F(Http, RefusesMisshapenPaths) {
  for (const auto* const target : {"/", "/s", "/s/", "//k", "/s/k/l", "/s/k%2", "/s/k?what=1"}) {
    EXPECT_EQ(ask("GET", target).status, 400) << target;
    EXPECT_EQ(ask("PUT", target, "v").status, 400) << target;
    EXPECT_EQ(ask("DELETE", target).status, 400) << target;
  }
  EXPECT_EQ(ask("PUT", "/s/k?wait=1", "v").status, 400);
  EXPECT_EQ(ask("GET", "/s/k?newer=1").status, 400);
  EXPECT_EQ(ask("GET", "/s/k?expected=1").status, 400);
  EXPECT_EQ(ask("GET", "/s/k?wait=61").status, 400);
}

TEST_F(Http, RefusesOtherMethodsAndTellsHeadNothing) {
  EXPECT_EQ(ask("PUT", "/s/k", "secret").status, 200);
  for (const auto* const method : {"HEAD", "OPTIONS", "PATCH", "TRACE", "BREW"}) {
    for (const auto* const target : {"/s/k", "/s/none", "/README.md"}) {
      RawConnection connection(server_.address());
      connection.send(cat(method, " ", target, " HTTP/1.1\r\nHost: x\r\n\r\n"));
      connection.half_close();
      const std::string all = connection.receive_all();
      EXPECT_TRUE(all.starts_with("HTTP/1.1 405 ")) << all;
      EXPECT_NE(all.find("\r\nAllow: GET, PUT, DELETE, POST\r\n"), std::string::npos) << all;
      if (std::string_view(method) == "HEAD") {
        EXPECT_TRUE(all.ends_with("\r\n\r\n")) << all;
      }
    }
  }
}

TEST_F(Http, RefusesClientsThatDoNotProveTheToken) {
  EXPECT_EQ(ask("PUT", "/s/k", "secret").status, 200);
  const auto unsigned_answer = ask_raw("GET /s/k HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(unsigned_answer.status, 401);
  EXPECT_EQ(unsigned_answer.field("WWW-Authenticate"), "HVD1");
  EXPECT_NE(unsigned_answer.body.find("not signed"), std::string::npos);
  EXPECT_EQ(unsigned_answer.field("Hvd-Proof"), "");

  Signer stranger(Token::random(), 2);
  RawConnection connection(server_.address());
  connection.send(signed_request(stranger, "GET", "/s/k"));
  const auto wrong = connection.receive();
  EXPECT_EQ(wrong.status, 401);
  EXPECT_EQ(wrong.field("Hvd-Proof"), "");
  EXPECT_EQ(wrong.body.find("secret"), std::string::npos);

  std::string two = signed_request(signer_, "GET", "/s/k");
  two.insert(two.find("Authorization"), "Authorization: HVD1 x\r\n");
  EXPECT_EQ(ask_raw(two).status, 400);
}

TEST_F(Http, RefusesAReplayedRequest) {
  const std::string put = signed_request(signer_, "PUT", "/s/k", "old");
  connection_.send(put);
  EXPECT_EQ(connection_.receive().status, 200);
  EXPECT_EQ(ask("PUT", "/s/k", "new").status, 200);
  RawConnection attacker(server_.address());
  attacker.send(put);
  const auto replayed = attacker.receive();
  EXPECT_EQ(replayed.status, 401);
  EXPECT_NE(replayed.body.find("received before"), std::string::npos);
  EXPECT_EQ(ask("GET", "/s/k").body, "new");
}

TEST_F(Http, RefusesABodyThatIsNotTheSignedOne) {
  std::string put = signed_request(signer_, "PUT", "/s/k", "value");
  put.replace(put.size() - 5, 5, "VALUE");
  connection_.send(put);
  EXPECT_EQ(connection_.receive().status, 401);
  EXPECT_EQ(ask("GET", "/s/k").status, 404);
}

TEST_F(Http, TellsItsTimeToAClientWhoseClockIsWrong) {
  for (const std::int64_t offset : {-3'600'000, 3'600'000}) {
    connection_.send(signed_request(signer_, "GET", "/s/k", "", offset));
    const auto answer = connection_.receive();
    EXPECT_EQ(answer.status, 401);
    const auto time = parse_number<std::int64_t>(answer.field("Hvd-Time")).value_or(0);
    EXPECT_LT(std::abs(time - unix_now()), 60'000);
    EXPECT_FALSE(answer.field("Hvd-Proof").empty());
  }
}

TEST_F(Http, NamesTheLimitThatWasReached) {
  EXPECT_EQ(ask("PUT", "/s/" + std::string(33, 'k'), "v").status, 414);
  EXPECT_EQ(ask("GET", "/" + std::string(33, 's') + "/k").status, 414);
  EXPECT_EQ(ask("PUT", "/1/k", "v").status, 200);
  EXPECT_EQ(ask("PUT", "/2/k", "v").status, 200);
  EXPECT_EQ(ask("PUT", "/3/k", "v").status, 200);
  const auto scopes = ask("PUT", "/4/k", "v");
  EXPECT_EQ(scopes.status, 507);
  EXPECT_NE(scopes.body.find("3 scopes"), std::string::npos);
  int stored = 0;
  RawAnswer last;
  for (; stored < 20; ++stored) {
    last = ask("PUT", cat("/1/key", stored), std::string(500, 'x'));
    if (last.status != 200) break;
  }
  EXPECT_LT(stored, 20);
  EXPECT_EQ(last.status, 507);
  EXPECT_EQ(ask("GET", "/1/k").body, "v");

  connection_.send(signed_request(signer_, "PUT", "/1/k", std::string(1'001, 'x')));
  const auto value = connection_.receive();
  EXPECT_EQ(value.status, 413);
  EXPECT_NE(value.body.find("limit is 1,000"), std::string::npos);
  EXPECT_FALSE(value.field("Hvd-Proof").empty());
}

TEST_F(Http, RefusesLargeHeadersAndBodiesWithoutLength) {
  EXPECT_EQ(ask_raw("GET /s/k HTTP/1.1\r\nX: " + std::string(2'000, 'x') + "\r\n\r\n").status, 431);
  EXPECT_EQ(ask_raw("PUT /s/k HTTP/1.1\r\nHost: x\r\n\r\n").status, 411);
  EXPECT_EQ(
      ask_raw("PUT /s/k HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n").status,
      411);
  EXPECT_EQ(ask_raw("GET /s/k HTTP/1.1\r\nContent-Length: 1\r\n\r\nx").status, 400);
  EXPECT_EQ(ask_raw("PUT /s/k HTTP/1.1\r\nContent-Length: -1\r\n\r\n").status, 400);
  EXPECT_EQ(ask_raw("PUT /s/k HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx").status,
            400);
}

TEST_F(Http, RefusesConditionsThatItWouldOtherwiseIgnore) {
  std::string put = signed_request(signer_, "PUT", "/s/k", "v");
  put.insert(put.find("Content-Length"), "If-Match: \"1\"\r\n");
  EXPECT_EQ(ask_raw(put).status, 400);
}

TEST_F(Http, ComparesBeforeItSets) {
  const auto first = ask("PUT", "/s/k?expected=0", "first");
  EXPECT_EQ(first.status, 200);
  const auto lost = ask("PUT", "/s/k?expected=0", "second");
  EXPECT_EQ(lost.status, 412);
  EXPECT_NE(lost.body.find("not absent as expected"), std::string::npos) << lost.body;
  EXPECT_EQ(ask("PUT", "/s/k?expected=" + first.field("Hvd-Version"), "second").status, 200);
  EXPECT_EQ(ask("GET", "/s/k").body, "second");
}

TEST_F(Http, AnswersPipelinedRequestsInOrder) {
  std::string all;
  for (int i = 0; i < 200; ++i) {
    all += signed_request(signer_, "PUT", "/s/k", std::to_string(i));
    all += signed_request(signer_, "GET", "/s/k");
  }
  connection_.send(all);
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(connection_.receive().status, 200);
    EXPECT_EQ(connection_.receive().body, std::to_string(i));
  }
}

TEST_F(Http, AnswersARequestThatComesInManyPieces) {
  for (const char byte : signed_request(signer_, "PUT", "/s/k", "value"))
    connection_.send({&byte, 1});
  EXPECT_EQ(connection_.receive().status, 200);
  EXPECT_EQ(ask("GET", "/s/k").body, "value");
}

TEST_F(Http, WaitsForAKeyAndKeepsTheOrderOfWhatIsPipelinedBehind) {
  connection_.send(signed_request(signer_, "GET", "/s/k?wait=60"));
  // More than the server's buffer takes while it waits.
  std::string behind;
  for (int i = 0; i < 50; ++i) behind += signed_request(signer_, "GET", "/s/other");
  connection_.send(behind);
  const auto other = server_.client();
  ASSERT_TRUE(other->put("s", "k", "value").ok());
  EXPECT_EQ(connection_.receive().body, "value");
  for (int i = 0; i < 50; ++i) EXPECT_EQ(connection_.receive().status, 404);
}

TEST_F(Http, EndsAWaitAtItsTime) {
  const auto late = ask("GET", "/s/k?wait=0.05");
  EXPECT_EQ(late.status, 404);
  EXPECT_NE(late.body.find("within 50 ms"), std::string::npos);
  EXPECT_EQ(ask("GET", "/s/k?wait=0").status, 404);
}

TEST_F(Http, WaitsForSomethingNewer) {
  const auto put = ask("PUT", "/s/k", "old");
  EXPECT_EQ(ask("GET", "/s/k?wait=0&newer=1").body, "old");
  const std::string newer = "/s/k?newer=" + put.field("Hvd-Version");
  EXPECT_EQ(ask("GET", newer + "&wait=0.02").status, 404);
  connection_.send(signed_request(signer_, "GET", newer + "&wait=60"));
  ASSERT_TRUE(server_.client()->put("s", "k", "new").ok());
  EXPECT_EQ(connection_.receive().body, "new");
}

TEST_F(Http, WritesAndReadsManyKeysInOneRequest) {
  EXPECT_EQ(ask("POST", "/s?write", encode_bulk_write({{"a", "1"}, {"b", "2"}})).status, 200);
  const auto answer = ask("POST", "/s?read", encode_bulk_keys({"b", "none", "a"}));
  ASSERT_EQ(answer.status, 200);
  const auto values = decode_bulk_values(answer.body);
  ASSERT_TRUE(values.ok());
  EXPECT_EQ((*values)[0]->value, "2");
  EXPECT_FALSE((*values)[1].has_value());
  EXPECT_EQ((*values)[2]->value, "1");

  connection_.send(
      signed_request(signer_, "POST", "/s?read&wait=60", encode_bulk_keys({"a", "c", "d"})));
  const auto other = server_.client();
  ASSERT_TRUE(other->put("s", "d", "4").ok());
  ASSERT_TRUE(other->put("s", "c", "3").ok());
  const auto waited = decode_bulk_values(connection_.receive().body);
  ASSERT_TRUE(waited.ok());
  EXPECT_EQ((*waited)[1]->value, "3");
  EXPECT_EQ((*waited)[2]->value, "4");
}

TEST_F(Http, AReadOfManyKeysWaitsAgainAfterEachOfThem) {
  connection_.send(
      signed_request(signer_, "POST", "/s?read&wait=60", encode_bulk_keys({"a", "b", "c", "d"})));
  const auto other = server_.client();
  for (const char* const key : {"a", "b", "c", "d"}) {
    ASSERT_TRUE(other->put("s", key, key).ok()) << key;
  }
  const auto values = decode_bulk_values(connection_.receive().body);
  ASSERT_TRUE(values.ok());
  EXPECT_EQ((*values)[3]->value, "d");
}

TEST_F(Http, BodiesCountOnlyWhileTheyAreOnTheirWay) {
  const std::size_t times = 3 * small_options().limits.max_total / 1'000;
  for (std::size_t i = 0; i < times; ++i) {
    ASSERT_EQ(ask("PUT", "/s/k", std::string(1'000, 'x')).status, 200) << i;
  }
}

// The server takes it in, and the store, which counts more than the value, has no room for it.
TEST(HttpLimits, ABodyOfAllThatTheStoreMayHoldIsReadAndRefusedByTheStore) {
  ServerOptions options = small_options();
  options.limits.max_total = options.limits.max_value;
  RunningServer server(options);
  Signer signer{server.token(), 1};
  RawConnection connection{server.address()};
  connection.send(signed_request(signer, "PUT", "/s/k", std::string(1'000, 'x')));
  EXPECT_EQ(connection.receive().status, 507);
}

TEST(HttpLimits, AnswersAsManyBytesAsTheLimitOfABulkRequestAndNotOneMore) {
  ServerOptions options = small_options();
  options.limits.max_total = 1'000'000;
  RunningServer server(options);
  Signer signer{server.token(), 1};
  RawConnection connection{server.address()};
  const auto ask = [&](std::string_view method, std::string_view target, std::string_view body) {
    connection.send(signed_request(signer, method, target, body));
    return connection.receive();
  };

  // Five of the largest values are just as much as an answer may hold.
  std::vector<std::string> keys;
  for (const char key : {'a', 'b', 'c', 'd', 'e'}) {
    keys.emplace_back(1, key);
    ASSERT_EQ(ask("PUT", cat("/s/", key), std::string(1'000, key)).status, 200);
  }
  EXPECT_EQ(ask("POST", "/s?read", encode_bulk_keys(keys)).status, 200);
  ASSERT_EQ(ask("PUT", "/s/f", "x").status, 200);
  keys.emplace_back("f");
  const auto more = ask("POST", "/s?read", encode_bulk_keys(keys));
  EXPECT_EQ(more.status, 413);
  EXPECT_NE(more.body.find("more than 5,000 bytes together"), std::string::npos) << more.body;
}

TEST_F(Http, RefusesMisshapenBulkRequests) {
  EXPECT_EQ(ask("POST", "/s", "").status, 400);
  EXPECT_EQ(ask("POST", "/s?read&write", "").status, 400);
  EXPECT_EQ(ask("POST", "/s/k?read", encode_bulk_keys({"a"})).status, 400);
  EXPECT_EQ(ask("POST", "/s?write", "rubbish!").status, 400);
  EXPECT_EQ(ask("POST", "/s?read", "rubbish!").status, 400);
  EXPECT_EQ(ask("POST", "/s?write", encode_bulk_write({{std::string(33, 'k'), "v"}})).status, 414);
  const auto big =
      ask("POST", "/s?write", encode_bulk_write({{"a", "1"}, {"b", std::string(1'001, 'x')}}));
  EXPECT_EQ(big.status, 413);
  EXPECT_NE(big.body.find("/s/b"), std::string::npos);
  EXPECT_EQ(ask("GET", "/s/a").status, 404);
}

TEST_F(Http, TellsItsHealthToAnybodyAndNothingElse) {
  const auto answer = ask_raw("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "ok\n");
  EXPECT_EQ(ask_raw("PUT /healthz HTTP/1.1\r\nContent-Length: 1\r\n\r\nx").status, 401);
  EXPECT_EQ(ask_raw("GET /healthz/x HTTP/1.1\r\n\r\n").status, 401);
}

TEST_F(Http, ContinuesWhenTheClientWantsToHearItFirst) {
  std::string put = signed_request(signer_, "PUT", "/s/k", "value");
  put.insert(put.find("Content-Length"), "Expect: 100-continue\r\n");
  connection_.send(std::string_view(put).substr(0, put.size() - 5));
  EXPECT_EQ(connection_.receive().status, 100);
  connection_.send("value");
  EXPECT_EQ(connection_.receive().status, 200);
}

TEST_F(Http, TellsAClientOfHttp10ThatItsConnectionStaysOpen) {
  std::string get = signed_request(signer_, "GET", "/s/k");
  get.replace(get.find("HTTP/1.1"), 8, "HTTP/1.0");
  get.insert(get.find("Authorization"), "Connection: keep-alive\r\n");
  connection_.send(get);
  EXPECT_EQ(connection_.receive().field("Connection"), "keep-alive");
  EXPECT_EQ(ask("GET", "/s/k").status, 404);
}

TEST_F(Http, SaysThatItClosesAfterBytesThatAreNoRequest) {
  EXPECT_EQ(ask_raw("this is no request\r\n\r\n").field("Connection"), "close");
}

TEST_F(Http, ClosesWhenTheClientAsksForIt) {
  std::string get = signed_request(signer_, "GET", "/s/k");
  get.insert(get.find("Authorization"), "Connection: close\r\n");
  connection_.send(get);
  const auto answer = connection_.receive();
  EXPECT_EQ(answer.status, 404);
  EXPECT_EQ(answer.field("Connection"), "close");
  EXPECT_TRUE(connection_.closed_by_server());
}

TEST(HttpServer, ServesIpv6) {
  ServerOptions options;
  options.bind = {"::1", 0};
  RunningServer server(options);
  const auto client = server.client();
  ASSERT_TRUE(client->put("s", "k", "v").ok());
  EXPECT_EQ(client->get("s", "k")->value, "v");
}

TEST(HttpServer, NamesTheAddressThatItCannotHave) {
  RunningServer server;
  boost::asio::io_context io(1);
  ServerOptions options;
  options.bind = server.address();
  Server second(io, Token::random(), options);
  const Status started = second.start();
  EXPECT_FALSE(started.ok());
  EXPECT_NE(started.message().find(server.address().to_string()), std::string::npos);
}

TEST(HttpServer, WakesWaitingClientsWhenItsOwnerWrites) {
  RunningServer server;
  Signer signer(server.token(), 1);
  RawConnection connection(server.address());
  connection.send(signed_request(signer, "GET", "/world/current?wait=60"));
  server.on_its_thread([](Server& it) { it.put("world", "current", "document"); });
  EXPECT_EQ(connection.receive().body, "document");
  server.on_its_thread([](Server& it) { it.erase_scope("world"); });
  connection.send(signed_request(signer, "GET", "/world/current"));
  EXPECT_EQ(connection.receive().status, 404);
}

}  // namespace
}  // namespace hvd::rendezvous::test
