// The requests of Horovod's own clients as they stand on the wire: unsigned, a connection each.
#include <gtest/gtest.h>

#include "base/text.h"
#include "rendezvous/service.h"
#include "tests/rendezvous/server_fixture.h"

namespace hvd::rendezvous::test {
namespace {

ServerOptions legacy(bool on) {
  ServerOptions options;
  options.legacy_clients = on;
  return options;
}

void expect_scopes(RunningServer& server) {
  server.on_its_thread([](Server& own) { own.expect({{"global", 2}, {"local_a", 1}}); });
}

RawAnswer ask(const RunningServer& server, std::string_view method, std::string_view target,
              std::string_view body = "", std::string_view version = "1.1") {
  RawConnection connection(server.address());
  std::string request = cat(method, " ", target, " HTTP/", version, "\r\nHost: 127.0.0.1\r\n");
  if (method == "PUT") request += cat("Content-Length: ", body.size(), "\r\n");
  connection.send(request + "\r\n" + std::string(body));
  auto answer = connection.receive();
  EXPECT_TRUE(connection.closed_by_server()) << "they read to the end of the connection";
  return answer;
}

TEST(LegacyClients, MeetOneAnotherThroughTheServer) {
  RunningServer server(legacy(true));
  expect_scopes(server);
  for (const auto* const version : {"1.0", "1.1"}) {
    EXPECT_EQ(ask(server, "GET", "/global/0", "", version).status, 404);
    EXPECT_EQ(ask(server, "PUT", "/global/0", "addresses of 0", version).status, 200);
    EXPECT_EQ(ask(server, "PUT", "/global/1", "addresses of 1", version).status, 200);
    const auto answer = ask(server, "GET", "/global/0", "", version);
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body, "addresses of 0");
    EXPECT_EQ(ask(server, "DELETE", "/global/0", "", version).status, 200);
    EXPECT_EQ(ask(server, "GET", "/global/0", "", version).status, 200);
    EXPECT_EQ(ask(server, "DELETE", "/global/1", "", version).status, 200);
    EXPECT_EQ(ask(server, "GET", "/global/0", "", version).status, 404);
  }
  EXPECT_EQ(ask(server, "PUT", "/global_process_set_hash_1f/0", "x").status, 200);
  EXPECT_EQ(ask(server, "DELETE", "/global_process_set_hash_1f/0").status, 200);
  EXPECT_EQ(ask(server, "GET", "/global_process_set_hash_1f/0").status, 404);
}

TEST(LegacyClients, ReadTheRankThatTheDriverWrote) {
  RunningServer server(legacy(true));
  expect_scopes(server);
  server.on_its_thread([](Server& it) { it.put("rank_and_size", "a:0", "0,2,0,2,0,1"); });
  EXPECT_EQ(ask(server, "GET", "/rank_and_size/a:0").body, "0,2,0,2,0,1");
  EXPECT_EQ(ask(server, "PUT", "/worker_addresses/a:0", "pickle").status, 200);
}

TEST(LegacyClients, MayDoNothingElse) {
  RunningServer server(legacy(true));
  expect_scopes(server);
  EXPECT_EQ(ask(server, "PUT", "/rank_and_size/a:0", "x").status, 401);
  EXPECT_EQ(ask(server, "DELETE", "/rank_and_size/a:0").status, 401);
  EXPECT_EQ(ask(server, "GET", "/worker_addresses/a:0").status, 401);
  EXPECT_EQ(ask(server, "GET", "/world/current").status, 401);
  EXPECT_EQ(ask(server, "PUT", "/globals/0", "x").status, 401);
  EXPECT_EQ(ask(server, "GET", "/global/0?wait=60").status, 401);
  EXPECT_EQ(ask(server, "GET", "/global").status, 401);
}

TEST(LegacyClients, AreRefusedUnlessAllowed) {
  RunningServer server(legacy(false));
  for (const auto* const target : {"/global/0", "/local_a/0", "/cross_0/0", "/rank_and_size/a:0",
                                   "/worker_addresses/a:0", "/global_process_set_hash_1/0"}) {
    EXPECT_EQ(ask(server, "GET", target).status, 401) << target;
    EXPECT_EQ(ask(server, "PUT", target, "x").status, 401) << target;
    EXPECT_EQ(ask(server, "DELETE", target).status, 401) << target;
  }
}

TEST(LegacyClients, AreToldOfOnceWhenTheyAreRefused) {
  std::vector<std::string> told;
  ServerOptions options = legacy(false);
  options.on_legacy_client = [&](std::string_view request, std::string_view origin) {
    told.push_back(cat(request, " from ", origin));
  };
  {
    RunningServer server(options);
    EXPECT_EQ(ask(server, "GET", "/world/current").status, 401)
        << "nobody of Horovod asks for that";
    EXPECT_EQ(ask(server, "DELETE", "/rank_and_size/a:0").status, 401);
    EXPECT_EQ(ask(server, "GET", "/healthz").status, 200);
    for (int i = 0; i < 3; ++i) {
      const auto refused = ask(server, "GET", "/rank_and_size/a:0");
      EXPECT_EQ(refused.status, 401);
      EXPECT_NE(refused.body.find("--legacy-clients"), std::string::npos) << refused.body;
    }
  }
  EXPECT_EQ(told, std::vector<std::string>{"GET /rank_and_size/a:0 from 127.0.0.1"});
}

TEST(LegacyClients, CannotPassOffAWrongSignatureAsNone) {
  RunningServer server(legacy(true));
  expect_scopes(server);
  Signer stranger(Token::random(), 1);
  RawConnection connection(server.address());
  connection.send(signed_request(stranger, "GET", "/global/0"));
  EXPECT_EQ(connection.receive().status, 401);
}

}  // namespace
}  // namespace hvd::rendezvous::test
