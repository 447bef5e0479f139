// The rendezvous service as a program of its own, for worlds that something else launches: what
// `hvdrun rendezvous --bind ADDRESS:PORT` runs.
#pragma once

#include <string>
#include <string_view>

#include "base/security/crypto.h"
#include "base/socket.h"
#include "base/status.h"
#include "rendezvous/limits.h"

namespace hvd::rendezvous {

struct StandaloneOptions {
  SocketAddress bind{"127.0.0.1", 0};  // port 0: the kernel chooses
  // Holds the token as 64 hexadecimal digits. If there is no such file it is made, with a fresh
  // token, for its owner's eyes only; one that others may read is refused.
  std::string token_file;
  ServerLimits limits;
  bool legacy_clients = false;
};

// "ADDRESS:PORT" or "[IPV6]:PORT"; the address must be an IP address.
Result<SocketAddress> parse_bind_address(std::string_view text);

// The path names a descriptor that this process has inherited, such as /dev/fd/3. It may be a pipe,
// from which a token can be read once.
bool is_inherited(std::string_view path);
// Reads the token file; Code::not_found if there is none. Waits for the writer of a pipe, for a
// while.
Result<Token> load_token(const std::string& path);
// Reads the token file, or makes it. The error names the file and what is wrong with it.
Result<Token> load_or_create_token(const std::string& path);

// Serves until SIGINT or SIGTERM, then returns 0. When ready it prints one line with the address on
// stdout ("rendezvous ready at http://127.0.0.1:4000"). What stops it from starting is printed on
// stderr, and the exit code is 1. Takes over both signals of the process while it runs.
int serve_forever(const StandaloneOptions& options);

}  // namespace hvd::rendezvous
