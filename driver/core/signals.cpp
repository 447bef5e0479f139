#include "driver/core/signals.h"

#include <csignal>

#include "driver/core/job_pause.h"

namespace hvd::driver {
namespace {

// The time of a request that is no signal: a signal that comes next is another one.
constexpr TimePoint kLongAgo{};

}  // namespace

bool is_ignored(int signal_number) {
  struct sigaction action {};
  ::sigaction(signal_number, nullptr, &action);
  return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_IGN;
}

Signals::Signals(boost::asio::io_context& io) : set_(io, SIGTERM) {
  for (const int number : {SIGINT, SIGQUIT, SIGHUP}) {
    if (!is_ignored(number)) set_.add(number);
  }
  wait();
}

void Signals::handle(std::function<void(int)> handler) {
  handler_ = std::move(handler);
  deliver();
}

void Signals::request(int signal_number) {
  if (last_ == 0) raise(signal_number, kLongAgo);
}

void Signals::raise(int signal_number, TimePoint now) {
  if (signal_number == SIGHUP && std::exchange(hung_up_, true)) return;
  const bool may_be_repeated = last_ != 0 && signal_number != SIGQUIT;
  if (may_be_repeated && std::exchange(caller_may_repeat_, false)) return;
  if (is_same_request(signal_number, now)) return;
  last_ = signal_number;
  last_came_at_ = now;
  waiting_.push_back(signal_number);
  deliver();
}

bool Signals::is_same_request(int signal_number, TimePoint now) const {
  return signal_number == last_ && now - last_came_at_ < kOneRequest;
}

void Signals::wait() {
  set_.async_wait([this](const boost::system::error_code& error, int signal) {
    if (error) return;
    wait();
    raise(signal, Clock::now());
  });
}

void Signals::deliver() {
  while (handler_ && !waiting_.empty()) {
    const int signal = waiting_.front();
    waiting_.pop_front();
    handler_(signal);
  }
}

RequestSignals::RequestSignals(boost::asio::io_context& io) : set_(io, SIGUSR1, SIGUSR2) {
  if (!is_ignored(SIGTSTP)) set_.add(SIGTSTP);
  wait();
}

void RequestSignals::wait() {
  set_.async_wait([this](const boost::system::error_code& error, int signal) {
    if (error) return;
    if (handler_) {
      handler_(signal);
    } else if (signal == SIGTSTP) {
      stop_as_by_terminal();
    }
    wait();
  });
}

}  // namespace hvd::driver
