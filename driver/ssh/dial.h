// The way to a host's sshd: its name to addresses, addresses to a connected socket, or a proxy
// command to a socket pair. Everything with Patience; for any thread.
#pragma once

#include <memory>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "driver/ssh/patience.h"

namespace hvd::driver::ssh {

struct Endpoint {
  sockaddr_storage address{};
  socklen_t size = 0;
  std::string to_string() const;  // the address alone: "10.0.0.1", "fe80::1%eth0"
};

// `family`: "inet", "inet6", else both.
Result<std::vector<Endpoint>> resolve(const std::string& host, int port, const std::string& family,
                                      const Patience& patience);

struct Dialled {
  UniqueFd socket;            // non-blocking
  std::string local_address;  // both empty behind a proxy
  std::string peer_address;
};

// All addresses are tried, each a moment after the one before; the first to answer is taken. The
// error says what happened to each. `bind_address`: of this machine, or empty.
Result<Dialled> connect_first(const std::vector<Endpoint>& endpoints,
                              const std::string& bind_address, const Patience& patience);

// A command whose standard input and output lead to the host, without a terminal, in a session of
// its own. Dies with the object, with all of its process group.
class Proxy {
 public:
  // `command` for /bin/sh.
  static Result<std::unique_ptr<Proxy>> start(const std::string& command);
  ~Proxy();
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  UniqueFd take_socket() { return std::move(socket_); }
  // The last lines it wrote to its standard error so far.
  std::string complaint();

 private:
  Proxy() = default;
  pid_t pid_ = -1;
  UniqueFd socket_;
  UniqueFd errors_;  // the reading end, non-blocking
  std::string said_;
};

// How the other side greets: SSH, or what else it may be. Takes nothing from the socket.
struct Greeting {
  Status status;
  bool again = false;  // it may be different when tried again: sshd was just busy
};
Greeting await_greeting(int socket, const Patience& patience);

}  // namespace hvd::driver::ssh
