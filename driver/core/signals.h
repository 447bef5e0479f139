// The signals that the driver takes while the objects here live (docs/hvdrun.md has the table). For
// the driver's thread.
#pragma once

#include <deque>
#include <functional>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

namespace hvd::driver {

// Those that end the job: SIGINT, SIGTERM, SIGQUIT, and SIGHUP unless it was ignored, as nohup
// does. They wait for whoever handles them next. `io` has work as long as this lives.
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

// Those that ask for something while the job goes on: SIGUSR1, SIGUSR2, and SIGTSTP unless it was
// ignored. Before somebody handles them SIGTSTP stops this process alone, since no worker runs yet,
// and the others do nothing. `io` has work as long as this lives.
class RequestSignals {
 public:
  explicit RequestSignals(boost::asio::io_context& io);
  RequestSignals(const RequestSignals&) = delete;
  RequestSignals& operator=(const RequestSignals&) = delete;

  // Replaces the handler before. Null: none.
  void handle(std::function<void(int signal_number)> handler) { handler_ = std::move(handler); }

 private:
  void wait();

  boost::asio::signal_set set_;
  std::function<void(int)> handler_;
};

}  // namespace hvd::driver
