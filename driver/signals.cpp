#include "driver/signals.h"

#include <csignal>
#include <utility>

namespace hvd::driver {

Signals::Signals(boost::asio::io_context& io) : set_(io, SIGINT, SIGTERM) {
  struct sigaction hangup {};
  ::sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) set_.add(SIGHUP);
  wait();
}

void Signals::handle(std::function<void(int)> handler) {
  handler_ = std::move(handler);
  deliver();
}

void Signals::wait() {
  set_.async_wait([this](const boost::system::error_code& error, int signal) {
    if (error) return;
    waiting_.push_back(signal);
    wait();
    deliver();
  });
}

void Signals::deliver() {
  while (handler_ && !waiting_.empty()) {
    const int signal = waiting_.front();
    waiting_.pop_front();
    handler_(signal);
  }
}

}  // namespace hvd::driver
