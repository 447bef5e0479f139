#include "rendezvous/standalone.h"

#include <cerrno>
#include <csignal>
#include <cstdio>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include "base/machine/machine.h"
#include "base/printable.h"
#include "rendezvous/server.h"

namespace hvd::rendezvous {
namespace {

int fail(const Status& status) {
  std::fprintf(stderr, "hvdrun rendezvous: %s\n", printable_lines(status.message()).c_str());
  return 1;
}

}  // namespace

int serve_forever(const StandaloneOptions& options) {
  if (options.token_file.empty()) {
    return fail({Code::invalid_argument, "no token file was named"});
  }
  const auto token = load_or_create_token(options.token_file);
  if (!token.ok()) return fail(token.status());
  raise_open_files();  // each waiting client needs one

  boost::asio::io_context io(1);
  ServerOptions server_options;
  server_options.bind = options.bind;
  server_options.ports = options.ports;
  server_options.limits = options.limits;
  server_options.legacy_clients = options.legacy_clients;
  Server server(io, *token, std::move(server_options));
  if (const Status started = server.start(); !started.ok()) return fail(started);

  boost::asio::signal_set signals(io, SIGINT, SIGTERM);
  signals.async_wait([&](const boost::system::error_code& error, int) {
    if (error) return;
    server.stop();
    io.stop();
  });
  // A service whose port nobody knows is of no use.
  std::printf("rendezvous ready at http://%s\n", server.address().to_string().c_str());
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return fail(Status::from_errno("write to standard output", errno));
  }
  io.run();
  return 0;
}

}  // namespace hvd::rendezvous
