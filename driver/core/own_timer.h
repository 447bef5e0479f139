// A timer for a wait on others. Time in which this process was stopped does not count
// (base/machine/own_time.h), and what arrived meanwhile is read before the wait is over.
//
// For the thread of `io`, which outlives this.
#pragma once

#include <functional>
#include <memory>

#include <boost/asio/io_context.hpp>

#include "base/clock.h"

namespace hvd::driver {

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

}  // namespace hvd::driver
