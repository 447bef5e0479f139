// Where the mark of a commit goes while hvdrun, and its rendezvous with it, comes and goes.
#include "worker/process/high_water.h"

#include <condition_variable>
#include <functional>
#include <future>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

#include "rendezvous/server.h"
#include "tests/support/process.h"

namespace hvd::worker {
namespace {

using test::kGenerous;

class FakeAgent final : public MarkKeeper {
 public:
  bool driver_is_gone() const override {
    const std::lock_guard lock(mutex_);
    return is_gone_;
  }
  bool wait_for_driver(TimePoint deadline) const override {
    std::unique_lock lock(mutex_);
    is_waited_for_ = true;
    changed_.notify_all();
    return changed_.wait_until(lock, deadline, [this] { return !is_gone_; });
  }
  Status keep_mark(const CommitId& id) override {
    const std::lock_guard lock(mutex_);
    newest_ = id;
    if (is_gone_) told_.push_back(id);
    if (on_told_) on_told_();
    return {};
  }

  void say_gone(bool gone) {
    const std::lock_guard lock(mutex_);
    is_gone_ = gone;
    changed_.notify_all();
  }
  // The successor comes while the agent is told.
  void say_back_when_told() {
    on_told_ = [this] { is_gone_ = false; };
  }
  bool until_waited_for() const {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, Clock::now() + kGenerous, [this] { return is_waited_for_; });
  }
  std::vector<CommitId> told() const {
    const std::lock_guard lock(mutex_);
    return told_;
  }
  CommitId newest() const {
    const std::lock_guard lock(mutex_);
    return newest_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool is_gone_ = false;
  mutable bool is_waited_for_ = false;
  CommitId newest_;
  std::vector<CommitId> told_;  // while hvdrun was gone
  std::function<void()> on_told_;
};

// The rendezvous of one hvdrun.
class Service {
 public:
  Service(const Token& key, std::uint16_t port)
      : busy_(boost::asio::make_work_guard(io_)),
        server_(new rendezvous::Server(io_, key, at(port))) {
    const Status started = server_->start();
    EXPECT_TRUE(started.ok()) << started.to_string();
    port_ = server_->address().port;
    thread_ = std::thread([this] { io_.run(); });
  }
  ~Service() {
    on_its_thread([this] { server_.reset(); });
    busy_.reset();
    thread_.join();
  }
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  std::uint16_t port() const { return port_; }
  void put_mark(const std::string& text) {
    on_its_thread([&] { server_->put(kCommitScope, kHighWaterKey, text); });
  }
  std::string mark() {
    std::string text;
    on_its_thread([&] { text = server_->get(kCommitScope, kHighWaterKey); });
    return text;
  }
  // Answers nothing until the function that this returns is called.
  std::function<void()> freeze() {
    auto over = std::make_shared<std::promise<void>>();
    std::promise<void> begun;
    boost::asio::post(io_, [&begun, waits = over->get_future().share()] {
      begun.set_value();
      waits.wait();
    });
    begun.get_future().wait();
    return [over] { over->set_value(); };
  }

 private:
  static rendezvous::ServerOptions at(std::uint16_t port) {
    rendezvous::ServerOptions options;
    options.bind.port = port;
    return options;
  }
  void on_its_thread(const std::function<void()>& work) {
    std::promise<void> done;
    boost::asio::post(io_, [&] {
      work();
      done.set_value();
    });
    done.get_future().wait();
  }

  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> busy_;
  std::unique_ptr<rendezvous::Server> server_;
  std::uint16_t port_ = 0;
  std::thread thread_;
};

class MarkWithoutDriver : public ::testing::Test {
 protected:
  MarkWithoutDriver() {
    begin_service();
    rendezvous::ClientOptions options;
    options.host = "127.0.0.1";
    options.port = port_;
    options.request_timeout = 2 * kGenerous;  // waits that are not cut short fail these tests
    client_ = std::make_shared<rendezvous::Client>(options, key_);
    mark_ = std::make_unique<RendezvousHighWater>(client_, agent_);
  }
  void begin_service() {
    service_ = std::make_unique<Service>(key_, port_);
    port_ = service_->port();
  }
  Status write(const CommitId& id) {
    auto written = std::async(std::launch::async, [this, id] { return mark_->write(id); });
    return until(written);
  }
  template <typename Value>
  static Value until(std::future<Value>& value) {
    EXPECT_EQ(value.wait_for(kGenerous), std::future_status::ready);
    return value.get();
  }

  Token key_ = Token::random();
  std::uint16_t port_ = 0;
  std::unique_ptr<Service> service_;
  FakeAgent agent_;
  std::shared_ptr<rendezvous::Client> client_;
  std::unique_ptr<RendezvousHighWater> mark_;
};

TEST_F(MarkWithoutDriver, GoesToTheAgentAndThenToTheSuccessor) {
  ASSERT_TRUE(write({3, 1}).ok());
  EXPECT_EQ(service_->mark(), "3.1");
  EXPECT_TRUE(agent_.told().empty());

  service_.reset();
  agent_.say_gone(true);
  ASSERT_TRUE(write({3, 2}).ok());
  ASSERT_TRUE(write({3, 3}).ok());
  EXPECT_EQ(agent_.told(), (std::vector<CommitId>{{3, 2}, {3, 3}}));

  // Its store counts from anew, and it may even have missed the marks.
  begin_service();
  agent_.say_gone(false);
  ASSERT_TRUE(write({3, 4}).ok());
  EXPECT_EQ(service_->mark(), "3.4");
  EXPECT_EQ(agent_.told().size(), 2U);
}

// Else the mark that only the old hvdrun had would be gone with it.
TEST_F(MarkWithoutDriver, TheAgentLearnsOfEveryMarkThatIsWrittenOrRead) {
  service_->put_mark("2.9");
  ASSERT_TRUE(mark_->read().ok());
  EXPECT_EQ(agent_.newest(), (CommitId{2, 9}));
  ASSERT_TRUE(write({3, 1}).ok());
  EXPECT_EQ(agent_.newest(), (CommitId{3, 1}));
}

TEST_F(MarkWithoutDriver, AWriteUnderWayEndsWhenTheDriverGoes) {
  ASSERT_TRUE(write({3, 1}).ok());
  service_.reset();
  auto written = std::async(std::launch::async, [this] { return mark_->write({3, 2}); });
  // Refused connections alone mean nothing.
  EXPECT_EQ(written.wait_for(std::chrono::milliseconds(300)), std::future_status::timeout);
  EXPECT_TRUE(agent_.told().empty());
  agent_.say_gone(true);
  EXPECT_TRUE(until(written).ok());
  EXPECT_EQ(agent_.told(), (std::vector<CommitId>{{3, 2}}));
}

TEST_F(MarkWithoutDriver, AFrozenDriverIsWaitedForUntilItIsSaidToBeGone) {
  ASSERT_TRUE(write({3, 1}).ok());
  for (const bool goes : {false, true}) {
    const CommitId id{3, goes ? 3U : 2U};
    const auto thaw = service_->freeze();
    auto written = std::async(std::launch::async, [this, id] { return mark_->write(id); });
    EXPECT_EQ(written.wait_for(std::chrono::milliseconds(300)), std::future_status::timeout);
    if (goes) {
      agent_.say_gone(true);
      EXPECT_TRUE(until(written).ok());
      EXPECT_EQ(agent_.told(), (std::vector<CommitId>{id}));
      thaw();
    } else {
      thaw();
      EXPECT_TRUE(until(written).ok());
      EXPECT_EQ(service_->mark(), "3.2");
      EXPECT_TRUE(agent_.told().empty());
    }
  }
}

TEST_F(MarkWithoutDriver, ASuccessorThatComesMeanwhileGetsTheMarkToo) {
  ASSERT_TRUE(write({3, 1}).ok());
  service_.reset();
  begin_service();
  agent_.say_gone(true);
  agent_.say_back_when_told();
  ASSERT_TRUE(write({3, 2}).ok());
  EXPECT_EQ(agent_.told(), (std::vector<CommitId>{{3, 2}}));
  EXPECT_EQ(service_->mark(), "3.2");
}

TEST_F(MarkWithoutDriver, ANewerWorldInTheSuccessorsStoreCounts) {
  ASSERT_TRUE(write({3, 1}).ok());
  service_.reset();
  agent_.say_gone(true);
  ASSERT_TRUE(write({3, 2}).ok());
  begin_service();
  service_->put_mark("4.1");
  agent_.say_gone(false);
  EXPECT_EQ(write({3, 3}).code(), Code::aborted);
  EXPECT_EQ(service_->mark(), "4.1");
}

TEST_F(MarkWithoutDriver, IsReadOnlyWhenASuccessorHasHeardOfAllMarks) {
  ASSERT_TRUE(write({3, 1}).ok());
  service_.reset();
  agent_.say_gone(true);
  begin_service();  // it answers, but nobody has told it of any mark
  auto read = std::async(std::launch::async, [this] { return mark_->read(); });
  ASSERT_TRUE(agent_.until_waited_for());
  EXPECT_EQ(read.wait_for(std::chrono::milliseconds(300)), std::future_status::timeout);
  service_->put_mark("3.1");
  agent_.say_gone(false);
  const auto mark = until(read);
  ASSERT_TRUE(mark.ok()) << mark.status().to_string();
  EXPECT_EQ(*mark, (CommitId{3, 1}));
}

TEST_F(MarkWithoutDriver, AReadThatWaitsForASuccessorEndsWithItsClient) {
  agent_.say_gone(true);
  auto read = std::async(std::launch::async, [this] { return mark_->read().status(); });
  ASSERT_TRUE(agent_.until_waited_for());
  client_->cancel();
  EXPECT_EQ(until(read).code(), Code::aborted);
}

}  // namespace
}  // namespace hvd::worker
