#include "driver/core/signals.h"

#include <csignal>

#include "driver/core/job_pause.h"

namespace hvd::driver {
namespace {

bool is_ignored(int number) {
  struct sigaction action {};
  ::sigaction(number, nullptr, &action);
  return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

Signals::Signals(boost::asio::io_context& io) : set_(io, SIGINT, SIGTERM, SIGQUIT) {
  if (!is_ignored(SIGHUP)) set_.add(SIGHUP);
  wait();
}

void Signals::handle(std::function<void(int)> handler) {
  handler_ = std::move(handler);
  deliver();
}

void Signals::request(int signal_number) {
  if (!any_came_) raise(signal_number);
}

void Signals::raise(int signal_number) {
  if (signal_number == SIGHUP && std::exchange(hung_up_, true)) return;
  const bool may_be_repeated = any_came_ && signal_number != SIGQUIT;
  if (may_be_repeated && std::exchange(caller_may_repeat_, false)) return;
  any_came_ = true;
  waiting_.push_back(signal_number);
  deliver();
}

void Signals::wait() {
  set_.async_wait([this](const boost::system::error_code& error, int signal) {
    if (error) return;
    wait();
    raise(signal);
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
