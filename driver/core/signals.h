// The signals that the driver handles while the objects here exist (docs/hvdrun.md has the table).
// For the driver's thread.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include "base/clock.h"

namespace hvd::driver {

// Whether this process ignores the signal, as nohup makes it ignore SIGHUP, and a shell without job
// control SIGINT and SIGQUIT for what it starts in the background.
bool is_ignored(int signal_number);

// The signals that end the job: SIGTERM, and those of SIGINT, SIGQUIT and SIGHUP that are not
// ignored. They are queued until there is a handler. `io` has work as long as this object exists.
//
// A signal that comes again at once is the same request: timeout(1) and batch systems signal a
// process by itself and then with its group. So is any further SIGHUP: the kernel and a shell both
// send it when a terminal is closed.
class Signals {
 public:
  // Nobody presses Ctrl-C twice within this time.
  static constexpr std::chrono::milliseconds kOneRequest{200};

  explicit Signals(boost::asio::io_context& io);
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // Replaces the handler, which gets the queued signals at once. Null: signals are queued.
  void handle(std::function<void(int signal_number)> handler);
  // As if the signal had come, unless one has come before: a second signal would kill at once.
  void request(int signal_number);
  // The job runs for another process, and both may get the same signal, as Ctrl-C in a terminal;
  // the other one passes it on, or ends. So one signal after the first has no effect but SIGQUIT.
  void share_with_caller() { caller_may_repeat_ = true; }
  // The first queued signal, which stays in the queue; 0: there is none.
  int waiting() const { return waiting_.empty() ? 0 : waiting_.front(); }

 private:
  void wait();
  void raise(int signal_number, TimePoint now);
  bool is_same_request(int signal_number, TimePoint now) const;
  void deliver();

  boost::asio::signal_set set_;
  std::function<void(int)> handler_;
  std::deque<int> waiting_;
  int last_ = 0;  // the last one that counted; 0: none has come
  TimePoint last_came_at_{};
  bool hung_up_ = false;
  bool caller_may_repeat_ = false;
};

// The signals that request something while the job continues: SIGUSR1, SIGUSR2, and SIGTSTP unless
// it was ignored. Without a handler SIGTSTP stops this process alone, since no worker runs yet, and
// the others have no effect. `io` has work as long as this object exists.
class RequestSignals {
 public:
  explicit RequestSignals(boost::asio::io_context& io);
  RequestSignals(const RequestSignals&) = delete;
  RequestSignals& operator=(const RequestSignals&) = delete;

  // Replaces the handler. Null: there is no handler.
  void handle(std::function<void(int signal_number)> handler) { handler_ = std::move(handler); }

 private:
  void wait();

  boost::asio::signal_set set_;
  std::function<void(int)> handler_;
};

}  // namespace hvd::driver
