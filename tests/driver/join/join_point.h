// A JoinServer on a thread of its own, and everything that it has reported.
#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <gtest/gtest.h>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>

#include "base/clock.h"
#include "driver/join/join_server.h"
#include "tests/support/process.h"

namespace hvd::driver::join {

inline TimePoint soon() { return Clock::now() + test::kGenerous; }

class JoinPoint {
 public:
  explicit JoinPoint(Limits limits = {}, std::uint16_t port = 0) {
    Callbacks callbacks;
    callbacks.admit = [this](const std::string& host, const Labels& labels) {
      return admit(host, labels);
    };
    callbacks.on_joined = [this](JoinedAgent agent) {
      if (gives_up_at_once) return;
      const std::lock_guard lock(mutex_);
      joined_.push_back(std::move(agent));
    };
    callbacks.on_refused = [this](std::string_view text) {
      const std::lock_guard lock(mutex_);
      refused_.emplace_back(text);
    };
    server_.emplace(io_, token(), SocketAddress{"127.0.0.1", port}, std::move(callbacks), limits,
                    ListenPorts{}, &join_tokens);
    const Status started = server_->start();
    EXPECT_TRUE(started.ok()) << started.message();
    address_ = server_->address();
    thread_ = std::thread([this] { io_.run(); });
  }
  ~JoinPoint() {
    on_thread([this] {
      server_.reset();
      joined_.clear();
    });
    work_.reset();
    io_.stop();
    thread_.join();
  }
  JoinPoint(const JoinPoint&) = delete;
  JoinPoint& operator=(const JoinPoint&) = delete;

  static Token token() { return *Token::from_hex(std::string(64, 'a')); }
  const SocketAddress& address() const { return address_; }
  JoinTokens join_tokens{Token::random()};     // for the thread of the server
  std::atomic<bool> gives_up_at_once = false;  // whoever joins
  using Labels = std::vector<std::string>;
  std::function<Status(const std::string&, const Labels&)> admit =
      [](const std::string&, const Labels&) { return Status(); };

  std::vector<std::string> refused() {
    const std::lock_guard lock(mutex_);
    return refused_;
  }
  bool wait_for_refusal(const std::string& text) {
    return test::eventually([&] {
      for (const auto& line : refused()) {
        if (line.find(text) != std::string::npos) return true;
      }
      return false;
    });
  }
  bool wait_for_joined(std::size_t count) {
    return test::eventually([&] {
      const std::lock_guard lock(mutex_);
      return joined_.size() >= count;
    });
  }
  JoinedAgent& joined(std::size_t index) {
    const std::lock_guard lock(mutex_);
    return joined_.at(index);
  }
  void on_thread(const std::function<void()>& work) {
    std::promise<void> done;
    boost::asio::post(io_, [&] {
      work();
      done.set_value();
    });
    done.get_future().wait();
  }
  void post(std::function<void()> work) { boost::asio::post(io_, std::move(work)); }
  void forget_joined() {
    on_thread([this] {
      const std::lock_guard lock(mutex_);
      joined_.clear();
    });
  }
  void close() {
    on_thread([this] { server_.reset(); });
  }

 private:
  boost::asio::io_context io_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{
      io_.get_executor()};
  std::optional<JoinServer> server_;
  SocketAddress address_;
  std::thread thread_;
  std::mutex mutex_;
  std::vector<JoinedAgent> joined_;
  std::vector<std::string> refused_;
};

}  // namespace hvd::driver::join
