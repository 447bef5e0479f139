// Loads on a rendezvous server, and what they measured. Each is a free function that blocks until
// it is over.
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "base/security/crypto.h"
#include "base/socket.h"
#include "base/status.h"

namespace hvd::bench {

struct Measured {
  double seconds = 0;
  std::vector<double> milliseconds;  // of each request, sorted
};

// `clients` keep-alive connections driven by one thread, each with one signed request in flight:
// how many reads the server can answer.
Result<Measured> read_by_connections(const SocketAddress& server, const Token& token, int clients,
                                     std::chrono::milliseconds time);

// `clients` threads, each with a blocking rendezvous::Client as a worker has it.
Result<Measured> read_by_clients(const SocketAddress& server, const Token& token, int clients,
                                 std::chrono::milliseconds time);

// `clients` connections wait for one key; then it is written. The times are from the write's begin
// to each client's having its value.
Result<Measured> wake_waiters(const SocketAddress& server, const Token& token, int clients);

}  // namespace hvd::bench
