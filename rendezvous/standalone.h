// The rendezvous service as a program of its own, for worlds that something else launches: what
// `hvdrun rendezvous --bind ADDRESS:PORT` runs.
#pragma once

#include <string>

#include "base/port_range.h"
#include "base/socket.h"
#include "rendezvous/access.h"
#include "rendezvous/limits.h"

namespace hvd::rendezvous {

struct StandaloneOptions {
  SocketAddress bind{"127.0.0.1", 0};  // port 0: one of `ports`
  ListenPorts ports;
  // Holds the token as 64 hexadecimal digits. If there is no such file it is made, with a fresh
  // token, for its owner's eyes only; one that others may read is refused.
  std::string token_file;
  ServerLimits limits;
  bool legacy_clients = false;
};

// Serves until SIGINT or SIGTERM, then returns 0. When ready it prints one line with the address on
// stdout ("rendezvous ready at http://127.0.0.1:4000"). An error that stops it from starting is
// printed on stderr, and the exit code is 1. Takes over both signals of the process while it runs.
int serve_forever(const StandaloneOptions& options);

}  // namespace hvd::rendezvous
