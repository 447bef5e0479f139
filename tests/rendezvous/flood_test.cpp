// Unauthenticated connections, in numbers that would take every descriptor of the server. Clients
// with the token are served meanwhile, and hardly slower.
#include <algorithm>
#include <gtest/gtest.h>
#include <thread>

#include "base/text.h"
#include "rendezvous/client.h"
#include "rendezvous/standalone.h"
#include "tests/rendezvous/server_fixture.h"
#include "tests/support/process.h"
#include "tests/support/silent_crowd.h"

namespace hvd::rendezvous::test {
namespace {

using hvd::test::binary;
using hvd::test::kGenerous;
using hvd::test::Process;
using hvd::test::SilentCrowd;
using hvd::test::TemporaryDirectory;

// The service as a process that may open few files.
class Flooded : public testing::Test {
 protected:
  Flooded()
      : server_({"sh", "-c", "ulimit -n 128 && exec \"$0\" 127.0.0.1:0 \"$1\"",
                 binary("hvd_rendezvous_standalone"), token_file_}) {
    EXPECT_TRUE(server_.wait_for_output("\n")) << server_.err();
    const std::string address = server_.out().substr(server_.out().find("http://") + 7);
    where_ = *parse_bind_address(trim(address));
  }
  std::unique_ptr<Client> client() const {
    ClientOptions options;
    options.host = where_.host;
    options.port = where_.port;
    return std::make_unique<Client>(options, *load_token(token_file_));
  }
  // All members get on: those connected before, those that wait, and new ones.
  void expect_members_are_served(const SilentCrowd& crowd) {
    const auto old = client();
    ASSERT_TRUE(old->put("s", "k", "v").ok());
    Result<Versioned> waited = Status(Code::internal, "nobody has waited");
    std::jthread waiter([&] { waited = client()->wait("s", "late", Clock::now() + kGenerous); });
    ASSERT_TRUE(crowd.wait_for(1'000)) << crowd.made();
    for (int i = 0; i < 40; ++i) {
      const auto begun = Clock::now();
      const auto one = client();
      const auto put = one->put("s", cat("new", i), "v");
      ASSERT_TRUE(put.ok()) << i << ": " << put.status().to_string();
      const auto value = old->get("s", cat("new", i));
      EXPECT_TRUE(value.ok()) << value.status().to_string();
      EXPECT_LT(Clock::now() - begun, std::chrono::seconds(10)) << i;
    }
    EXPECT_TRUE(old->put("s", "late", "v").ok());
    waiter.join();
    EXPECT_TRUE(waited.ok()) << waited.status().to_string();
  }

  TemporaryDirectory directory_;
  std::string token_file_ = directory_.path() / "token";
  Process server_;
  SocketAddress where_;
};

TEST_F(Flooded, MembersAreServedBesideACrowdFromTheirOwnAddress) {
  const SilentCrowd crowd(where_, 1'000);
  expect_members_are_served(crowd);
  server_.signal(SIGTERM);
  const auto end = server_.wait();
  EXPECT_EQ(end.code, 0);
  EXPECT_LE(std::count(end.err.begin(), end.err.end(), '\n'), 3) << end.err;
  EXPECT_NE(end.err.find("that had not proved a key of this job"), std::string::npos) << end.err;
}

TEST_F(Flooded, MembersAreServedBesideACrowdFromAnotherAddress) {
  const SilentCrowd crowd(where_, 1'000, "127.0.0.2");
  expect_members_are_served(crowd);
}

TEST(Strangers, AuthenticatedConnectionsAreNotCounted) {
  ServerOptions options;
  options.limits.max_strangers = 2;
  RunningServer server(options);
  Signer signer(server.token(), 1);
  std::vector<std::unique_ptr<RawConnection>> members;
  for (int i = 0; i < 10; ++i) {
    members.push_back(std::make_unique<RawConnection>(server.address()));
    members.back()->send(signed_request(signer, "GET", "/s/k"));
    EXPECT_EQ(members.back()->receive().status, 404);
  }
  RawConnection first(server.address());
  RawConnection second(server.address());
  RawConnection third(server.address());
  EXPECT_TRUE(first.closed_by_server()) << "the oldest unauthenticated connection";
  for (const auto& member : members) {
    member->send(signed_request(signer, "GET", "/s/k"));
    EXPECT_EQ(member->receive().status, 404);
  }
}

// A request that somebody has overheard proves nothing.
TEST(Strangers, ARepeatedRequestMakesNobodyAMember) {
  ServerOptions options;
  options.limits.max_strangers = 1;
  RunningServer server(options);
  Signer signer(server.token(), 1);
  const std::string overheard = signed_request(signer, "GET", "/s/k");
  RawConnection member(server.address());
  member.send(overheard);
  EXPECT_EQ(member.receive().status, 404);
  RawConnection copy(server.address());
  copy.send(overheard);
  EXPECT_EQ(copy.receive().status, 401);
  RawConnection another(server.address());
  EXPECT_TRUE(copy.closed_by_server());
}

TEST(Strangers, HaveLittleTime) {
  ServerOptions options;
  options.limits.stranger_timeout = std::chrono::milliseconds(200);
  options.limits.receive_timeout = std::chrono::milliseconds(400);
  RunningServer server(options);
  RawConnection silent(server.address());
  EXPECT_TRUE(silent.closed_by_server());
  RawConnection slow(server.address());
  slow.send("GET /s/k HTT");
  EXPECT_TRUE(slow.closed_by_server());
}

}  // namespace
}  // namespace hvd::rendezvous::test
