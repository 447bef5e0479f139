// Reports that something takes longer than expected: first after two seconds, then every five. For
// the thread of its io_context.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

namespace hvd::driver {

class ProgressNotices {
 public:
  // The two seconds begin at once. The notices end with the object.
  ProgressNotices(boost::asio::io_context& io, std::function<void()> say)
      : timer_(io), say_(std::move(say)) {
    wait(std::chrono::seconds(2));
  }
  ProgressNotices(const ProgressNotices&) = delete;
  ProgressNotices& operator=(const ProgressNotices&) = delete;

 private:
  void wait(std::chrono::seconds time) {
    timer_.expires_after(time);
    timer_.async_wait(
        [this, alive = std::weak_ptr(alive_)](const boost::system::error_code& error) {
          if (error || alive.expired()) return;
          say_();
          wait(std::chrono::seconds(5));
        });
  }

  boost::asio::steady_timer timer_;
  std::function<void()> say_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace hvd::driver
