// A program that uses Boost.Asio itself, from headers and with its own settings.
#include <chrono>
#include <cstdio>

#include <boost/asio.hpp>

#include <hvd/hvd.h>

int main() {
  hvd::init();
  boost::asio::io_context io;
  boost::asio::steady_timer timer(io, std::chrono::milliseconds(1));
  bool rang = false;
  timer.async_wait([&rang](const boost::system::error_code& error) { rang = !error; });
  io.run();
  std::printf("consumer %d of %d\n", hvd::rank(), hvd::size());
  hvd::shutdown();
  return rang ? 0 : 1;
}
