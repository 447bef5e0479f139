// Timers of the driver's loop. For the thread of their io_context, which outlives them.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/clock.h"

namespace hvd::driver {

// A timer for a wait on others. Time in which this process was stopped does not count
// (base/machine/own_time.h), and what arrived meanwhile is read before the wait is over.
class OwnTimer {
 public:
  explicit OwnTimer(boost::asio::io_context& io) : io_(io) {}
  ~OwnTimer() { cancel(); }
  OwnTimer(const OwnTimer&) = delete;
  OwnTimer& operator=(const OwnTimer&) = delete;

  // Calls `over` once, when the limit has passed. An earlier wait is cancelled. `over` may destroy
  // this.
  void begin(Duration limit, std::function<void()> over);
  void cancel();

 private:
  class Wait;

  boost::asio::io_context& io_;
  std::shared_ptr<Wait> wait_;
};

// Calls a function about four times a second, so that a person sees what a job waits for.
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
