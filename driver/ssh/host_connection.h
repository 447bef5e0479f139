// A connected socket to a host's sshd: through a name lookup and TCP, or through a proxy command.
// All waiting is bounded by a Deadline. For any thread.
#pragma once

#include <memory>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <vector>

#include "base/descriptors.h"
#include "base/machine/child_process.h"
#include "base/status.h"
#include "driver/ssh/deadline.h"

namespace hvd::driver::ssh {

struct Endpoint {
  sockaddr_storage address{};
  socklen_t size = 0;
  std::string to_string() const;  // the address alone: "10.0.0.1", "fe80::1%eth0"
};

// `family`: "inet", "inet6", else both.
Result<std::vector<Endpoint>> resolve(const std::string& host, int port, const std::string& family,
                                      const Deadline& deadline);

struct ConnectedSocket {
  UniqueFd socket;  // non-blocking
  // Both are empty behind a proxy.
  std::string local_address;
  std::string peer_address;
};

// Tries all addresses, each a moment after the one before, and takes the first connection that
// stands (RFC 8305, "Happy Eyeballs"). The error names the failure of each address. `bind_address`:
// of this machine, or empty.
Result<ConnectedSocket> connect_first(const std::vector<Endpoint>& endpoints,
                                      const std::string& bind_address, const Deadline& deadline);

// A command whose standard input and output lead to the host, without a terminal, in a session of
// its own. The destructor kills it with its whole process group.
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
  ChildProcess command_;
  UniqueFd socket_;
  UniqueFd errors_;  // the reading end, non-blocking
  std::string output_;
};

// Whether another try may succeed where an SSH server does not identify itself.
enum class Retry {
  never,
  a_few_times,     // it closed the connection without a word, as a busy sshd does, and others
  until_deadline,  // sshd says that it is busy
};

// Waits until the other side identifies itself as an SSH server (RFC 4253, 4.2). Only peeks: libssh
// reads the banner again.
struct BannerResult {
  Status status;
  Retry retry = Retry::never;
};
BannerResult await_banner(int socket, const Deadline& deadline);

}  // namespace hvd::driver::ssh
