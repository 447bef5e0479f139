// One service on several addresses, opened and closed while it runs.
#include <gtest/gtest.h>

#include "tests/rendezvous/server_fixture.h"
#include "tests/support/process.h"

namespace hvd::rendezvous::test {
namespace {

class Listeners : public testing::Test {
 protected:
  Result<SocketAddress> listen(const SocketAddress& where) {
    Result<SocketAddress> result(Status(Code::internal, "not called"));
    server_.on_its_thread([&](Server& server) { result = server.listen(where); });
    return result;
  }
  std::unique_ptr<Client> client_at(const SocketAddress& where) const {
    ClientOptions options;
    options.host = where.host;
    options.port = where.port;
    return std::make_unique<Client>(options, server_.token());
  }
  static bool open(const SocketAddress& where) {
    return connect_tcp(where, Clock::now() + hvd::test::kGenerous).ok();
  }

  RunningServer server_;
};

TEST_F(Listeners, LeadToTheSameStoreOnTheSamePort) {
  const auto second = listen({"127.0.0.2", 0});
  ASSERT_TRUE(second.ok()) << second.status().to_string();
  const auto third = listen({"::1", 0});
  ASSERT_TRUE(third.ok()) << third.status().to_string();
  EXPECT_EQ(second->port, server_.address().port);
  EXPECT_EQ(third->port, server_.address().port);
  ASSERT_TRUE(client_at(*second)->put("s", "k", "by the second").ok());
  EXPECT_EQ(client_at(*third)->get("s", "k")->value, "by the second");
  EXPECT_EQ(server_.client()->get("s", "k")->value, "by the second");
}

TEST_F(Listeners, HaveAnotherPortWhereTheFirstIsTaken) {
  auto taken = listen_tcp({"127.0.0.3", server_.address().port});
  ASSERT_TRUE(taken.ok()) << taken.status().to_string();
  const auto listener = listen({"127.0.0.3", 0});
  ASSERT_TRUE(listener.ok()) << listener.status().to_string();
  EXPECT_NE(listener->port, server_.address().port);
  EXPECT_TRUE(client_at(*listener)->put("s", "k", "v").ok());
}

TEST_F(Listeners, CloseOneByOneAndKeepOpenConnections) {
  const auto second = listen({"127.0.0.2", 0});
  ASSERT_TRUE(second.ok()) << second.status().to_string();
  const auto inside = client_at(server_.address());
  ASSERT_TRUE(inside->put("s", "k", "v").ok());
  server_.on_its_thread([&](Server& server) {
    server.close(server_.address());
    EXPECT_EQ(server.address().to_string(), second->to_string());
  });
  EXPECT_FALSE(open(server_.address()));
  EXPECT_EQ(inside->get("s", "k")->value, "v");
  EXPECT_EQ(client_at(*second)->get("s", "k")->value, "v");
  // And open again.
  ASSERT_TRUE(listen(server_.address()).ok());
  EXPECT_TRUE(open(server_.address()));
}

TEST_F(Listeners, AreRefusedWhereThisMachineIsNot) {
  const auto nowhere = listen({"192.0.2.1", 0});
  ASSERT_FALSE(nowhere.ok());
  EXPECT_NE(nowhere.status().message().find("192.0.2.1"), std::string::npos)
      << nowhere.status().message();
  EXPECT_TRUE(server_.client()->put("s", "k", "v").ok());
}

}  // namespace
}  // namespace hvd::rendezvous::test
