// Calls a function about four times a second, so that a person sees what a job waits for. For the
// thread of its io_context.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

namespace hvd::driver {

class ProgressTimer {
 public:
  // The calls end with the object.
  ProgressTimer(boost::asio::io_context& io, std::function<void()> tell)
      : timer_(io), tell_(std::move(tell)) {
    wait();
  }
  ProgressTimer(const ProgressTimer&) = delete;
  ProgressTimer& operator=(const ProgressTimer&) = delete;

 private:
  static constexpr std::chrono::milliseconds kPace{250};

  void wait() {
    timer_.expires_after(kPace);
    timer_.async_wait(
        [this, alive = std::weak_ptr(alive_)](const boost::system::error_code& error) {
          if (error || alive.expired()) return;
          tell_();
          wait();
        });
  }

  boost::asio::steady_timer timer_;
  std::function<void()> tell_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace hvd::driver
