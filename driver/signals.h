// The signals by which somebody wants the job to end: SIGINT, SIGTERM, and SIGHUP unless it was
// ignored, as nohup does. They are taken while this lives, and wait for whoever handles them next.
//
// For the driver's thread. `io` has work as long as this lives.
#pragma once

#include <deque>
#include <functional>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

namespace hvd::driver {

class Signals {
 public:
  explicit Signals(boost::asio::io_context& io);
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // Replaces the handler before; those that nobody handled come at once. Null: they wait.
  void handle(std::function<void(int signal_number)> handler);
  // The first that waits, and stays; 0: none.
  int waiting() const { return waiting_.empty() ? 0 : waiting_.front(); }

 private:
  void wait();
  void deliver();

  boost::asio::signal_set set_;
  std::function<void(int)> handler_;
  std::deque<int> waiting_;
};

}  // namespace hvd::driver
