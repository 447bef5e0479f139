// The status page over real sockets: its files, the status, and the events as they come.
#include "driver/status/page_server.h"

#include <array>
#include <atomic>
#include <future>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "tests/rendezvous/server_fixture.h"
#include "tests/support/process.h"
#include "tests/support/silent_crowd.h"

namespace hvd::driver {
namespace {

namespace asio = boost::asio;
using rendezvous::test::RawAnswer;
using rendezvous::test::RawConnection;
using test::eventually;
using test::kGenerous;

// A server on a thread of its own, at a loopback address.
class PageServerTest : public testing::Test {
 protected:
  void SetUp() override { begin({}); }
  void TearDown() override { end(); }

  void begin(HttpLimits limits) {
    auto listening = *listen_tcp({"127.0.0.1", 0});
    address_ = *local_address(listening.get());
    io_ = std::make_unique<asio::io_context>(1);
    server_ = std::make_unique<PageServer>(
        *io_, "17f4f6a5c9b35ae1", address_, [this] { return cat("{\"asked\":", ++asked_, "}"); },
        limits);
    ASSERT_TRUE(server_->start(std::move(listening)).ok());
    thread_ = std::thread([io = io_.get()] {
      const auto work = asio::make_work_guard(*io);
      io->run();
    });
  }
  void end() {
    io_->stop();
    if (thread_.joinable()) thread_.join();
    server_.reset();
  }

  // Runs `work` on the server's thread and waits for it.
  template <typename Work>
  auto on_its_thread(Work work) {
    std::packaged_task<decltype(work())()> task(std::move(work));
    auto done = task.get_future();
    asio::post(*io_, [&task] { task(); });
    return done.get();
  }
  void add(const std::string& event) {
    on_its_thread([&] { server_->add_event(event); });
  }

  std::string request(const std::string& target, const std::string& fields = "") const {
    return cat("GET ", target, " HTTP/1.1\r\nHost: ", address_.to_string(), "\r\n", fields, "\r\n");
  }
  RawAnswer ask(const std::string& target, const std::string& fields = "") const {
    RawConnection connection(address_);
    connection.send(request(target, fields));
    return connection.receive();
  }
  // The header with the token of a browser that has opened the page.
  std::string token() {
    const std::string link = on_its_thread([&] { return server_->make_link(); });
    const RawAnswer answer = ask(link.substr(link.find("/?key=")));
    EXPECT_EQ(answer.status, 303) << answer.head;
    // A browser would send a cookie to other ports of the machine, too.
    EXPECT_EQ(answer.field("Set-Cookie"), "");
    const std::string place = answer.field("Location");
    EXPECT_EQ(place.substr(0, 2), "/#") << answer.head;
    return cat("Authorization: Bearer ", place.substr(2), "\r\n");
  }

  // A connection on which events come.
  class Reader {
   public:
    Reader(const SocketAddress& server, const std::string& request) : connection_(server) {
      connection_.send(request);
    }
    // Until this text has come.
    bool wait_for(const std::string& text) {
      const TimePoint deadline = Clock::now() + kGenerous;
      while (received_.find(text) == std::string::npos) {
        if (!hvd::wait_for(connection_.fd(), POLLIN, deadline).ok()) return false;
        std::array<char, 65536> buffer{};
        const ssize_t got = ::recv(connection_.fd(), buffer.data(), buffer.size(), 0);
        if (got <= 0) {
          closed_ = true;
          return false;
        }
        received_.append(buffer.data(), static_cast<std::size_t>(got));
      }
      return true;
    }
    // Until the server closes the connection.
    bool closed() {
      wait_for("what nobody says");
      return closed_;
    }
    const std::string& received() const { return received_; }
    int fd() const { return connection_.fd(); }

   private:
    RawConnection connection_;
    std::string received_;
    bool closed_ = false;
  };
  Reader reader(const std::string& fields, const std::string& target = "/events") const {
    return {address_, request(target, fields)};
  }

  SocketAddress address_;
  std::atomic<int> asked_ = 0;
  std::unique_ptr<asio::io_context> io_;
  std::unique_ptr<PageServer> server_;
  std::thread thread_;
};

TEST_F(PageServerTest, ThePageAndItsFilesAreForAllAndTheRestForTheToken) {
  const std::string fields = token();
  const std::vector<std::pair<std::string, std::string>> files{
      {"/", "text/html; charset=utf-8"},
      {"/page.css", "text/css; charset=utf-8"},
      {"/page.js", "text/javascript; charset=utf-8"},
      {"/access.js", "text/javascript; charset=utf-8"},
      {"/events.js", "text/javascript; charset=utf-8"},
      {"/plots.js", "text/javascript; charset=utf-8"},
      {"/world.js", "text/javascript; charset=utf-8"},
      {"/icon.svg", "image/svg+xml"}};
  for (const auto& [path, type] : files) {
    const RawAnswer answer = ask(path);
    EXPECT_EQ(answer.status, 200) << path;
    EXPECT_EQ(answer.field("Content-Type"), type) << path;
    EXPECT_GT(answer.body.size(), 100U) << path;
    EXPECT_EQ(answer.body.find("http://", answer.body.find("http://www.w3.org") == std::string::npos
                                              ? 0
                                              : answer.body.find("http://www.w3.org") + 1),
              std::string::npos)
        << path << " names something outside";
  }
  for (const char* const path : {"/status", "/events", "/none"}) {
    EXPECT_EQ(ask(path).status, 401) << path;
  }
  EXPECT_EQ(ask("/none", fields).status, 404);
  EXPECT_EQ(ask("/status", fields).body.substr(0, 9), "{\"asked\":");
}

TEST_F(PageServerTest, EveryAnswerTellsTheBrowserToBeStrict) {
  const std::string fields = token();
  for (const RawAnswer& answer :
       {ask("/"), ask("/status"), ask("/status", fields), ask("/none", fields)}) {
    EXPECT_EQ(answer.field("X-Content-Type-Options"), "nosniff") << answer.head;
    EXPECT_EQ(answer.field("Referrer-Policy"), "no-referrer") << answer.head;
    EXPECT_EQ(answer.field("Cache-Control"), "no-store") << answer.head;
    EXPECT_EQ(answer.field("X-Frame-Options"), "DENY") << answer.head;
    const std::string policy = answer.field("Content-Security-Policy");
    EXPECT_NE(policy.find("default-src 'none'"), std::string::npos) << policy;
    EXPECT_NE(policy.find("connect-src 'self'"), std::string::npos) << policy;
    EXPECT_EQ(policy.find("unsafe"), std::string::npos) << policy;
  }
}

TEST_F(PageServerTest, EventsAreWantedOnceSomebodyHasOpenedThePage) {
  const auto wanted = [&] { return on_its_thread([&] { return server_->wants_events(); }); };
  EXPECT_FALSE(wanted());
  EXPECT_EQ(ask("/").status, 200);
  EXPECT_EQ(ask("/events").status, 401);
  const std::string fields = token();
  EXPECT_FALSE(wanted());
  EXPECT_EQ(ask("/status", fields).status, 200);
  EXPECT_TRUE(wanted());
}

TEST_F(PageServerTest, EventsComeAtOnceAndWithIds) {
  const std::string fields = token();
  add("{\"n\":1}\n");
  Reader first = reader(fields);
  ASSERT_TRUE(first.wait_for("id: 1\ndata: {\"n\":1}\n\n")) << first.received();
  EXPECT_NE(first.received().find("Content-Type: text/event-stream\r\n"), std::string::npos);
  EXPECT_EQ(first.received().find("event: gap"), std::string::npos);
  add("{\"n\":2}");
  ASSERT_TRUE(first.wait_for("id: 2\ndata: {\"n\":2}\n\n")) << first.received();

  Reader again = reader(cat(fields, "Last-Event-ID: 1\r\n"));
  ASSERT_TRUE(again.wait_for("id: 2\n")) << again.received();
  EXPECT_EQ(again.received().find("id: 1\n"), std::string::npos);
  Reader asked = reader(fields, "/events?after=1");
  ASSERT_TRUE(asked.wait_for("id: 2\n")) << asked.received();
  EXPECT_EQ(asked.received().find("id: 1\n"), std::string::npos);
}

TEST_F(PageServerTest, AReaderIsToldOfAGap) {
  const std::string fields = token();
  for (int i = 0; i < 10'005; ++i) add("{}");
  Reader late = reader(cat(fields, "Last-Event-ID: 2\r\n"));
  ASSERT_TRUE(late.wait_for("event: gap\ndata: 3\n\n")) << late.received();
  ASSERT_TRUE(late.wait_for("id: 10005\n"));
  EXPECT_NE(late.received().find("id: 6\n"), std::string::npos);
  EXPECT_EQ(late.received().find("id: 5\n"), std::string::npos);
}

TEST_F(PageServerTest, TheEndIsToldAndWhatWasLeft) {
  Reader watching = reader(token());
  ASSERT_TRUE(watching.wait_for("retry: "));
  on_its_thread([&] {
    server_->add_event("{\"last\":true}");
    server_->end(3, "rank 1 has failed");
  });
  ASSERT_TRUE(watching.wait_for("\"reason\":\"rank 1 has failed\"}\n\n")) << watching.received();
  EXPECT_NE(watching.received().find("data: {\"last\":true}\n\nevent: end\n"), std::string::npos);
  EXPECT_TRUE(watching.closed());
}

// Events that it does not read stay in the buffer that all readers share; the others get them all.
TEST_F(PageServerTest, AReaderThatNeverReadsIsClosedAndHoldsUpNobody) {
  end();
  begin({.time = std::chrono::milliseconds(300)});
  const std::string fields = token();
  Reader deaf = reader(fields);
  Reader other = reader(fields);
  ASSERT_TRUE(deaf.wait_for("retry: "));
  const std::string event = cat("{\"x\":\"", std::string(2'000, 'x'), "\"}");
  for (int i = 1; i <= 9'000; ++i) {
    add(event);
    if (i % 500 != 0) continue;
    ASSERT_TRUE(other.wait_for(cat("id: ", i, "\n"))) << i;
  }
  // The system holds some megabytes for it, and no more.
  const auto closed = [&] {
    pollfd state{deaf.fd(), POLLOUT | POLLRDHUP, 0};
    return ::poll(&state, 1, 0) == 1 && (state.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
  };
  EXPECT_TRUE(eventually(closed));
  EXPECT_EQ(ask("/status", fields).status, 200);
}

TEST_F(PageServerTest, AReaderThatHasGoneMakesRoom) {
  end();
  begin({.streams = 2, .idle = std::chrono::hours(1)});
  const std::string fields = token();
  auto one = std::make_unique<Reader>(reader(fields));
  Reader two = reader(fields);
  ASSERT_TRUE(one->wait_for("retry: "));
  ASSERT_TRUE(two.wait_for("retry: "));
  Reader refused = reader(fields);
  EXPECT_TRUE(refused.wait_for("HTTP/1.1 503 ")) << refused.received();
  one.reset();
  EXPECT_TRUE(eventually([&] {
    Reader next = reader(fields);
    return next.wait_for("retry: ");
  }));
}

TEST_F(PageServerTest, SilenceIsFilledSoThatTheConnectionIsKnownToLive) {
  end();
  begin({.idle = std::chrono::milliseconds(20)});
  Reader watching = reader(token());
  EXPECT_TRUE(watching.wait_for("\n\n:\n\n:\n\n")) << watching.received();
}

TEST_F(PageServerTest, TheStatusIsMadeOnceForManyRequests) {
  const std::string fields = token();
  for (int i = 0; i < 50; ++i) EXPECT_EQ(ask("/status", fields).status, 200);
  EXPECT_LT(asked_, 50);
  const int before = asked_;
  EXPECT_TRUE(eventually([&] { return ask("/status", fields).status == 200 && asked_ > before; }));
}

TEST_F(PageServerTest, ACrowdThatSaysNothingDrivesOutItself) {
  const std::string fields = token();
  const test::SilentCrowd crowd(address_, 200, "127.0.0.2");
  ASSERT_TRUE(crowd.wait_for(500));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(ask("/status", fields).status, 200);
}

}  // namespace
}  // namespace hvd::driver
