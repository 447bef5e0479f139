// TCP and Unix sockets as descriptors, with errors as values and deadlines. For the parts that do
// not use Asio: the agent, and the runtime inside a worker. Every descriptor made here is
// close-on-exec; TCP ones have TCP_NODELAY, since our control messages must never wait for Nagle.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/un.h>
#include <utility>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/frame.h"
#include "base/status.h"

namespace hvd {

bool is_ip_address(const std::string& text);

// An IP address (no name: nothing here resolves) and a port.
struct SocketAddress {
  std::string host;  // "127.0.0.1", "::1"
  std::uint16_t port = 0;
  // "127.0.0.1:80", "[::1]:80"
  std::string to_string() const;
  friend bool operator==(const SocketAddress&, const SocketAddress&) = default;
};

// The same as the system wants it. The error names what is no address.
struct RawAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};
Result<RawAddress> raw_address(const SocketAddress& where);

// At the end of a message on a connection that nobody answered.
inline constexpr std::string_view kAskFirewall = " (does a firewall drop it?)";
// "connect to 10.0.0.1:80: Connection refused". `error_number`: why connect() failed.
Status connect_error(const SocketAddress& where, int error_number);

// Listens on `host`, IPv4 or IPv6; port 0 lets the kernel choose. `backlog` as in listen(2).
Result<UniqueFd> listen_tcp(const SocketAddress& where, int backlog = 1024);
Result<SocketAddress> local_address(int fd);
Result<SocketAddress> peer_address(int fd);
// Does not block: the socket, which is non-blocking, becomes writable when it is connected or
// SO_ERROR says why not.
Result<UniqueFd> begin_connect_tcp(const SocketAddress& where);
// Blocks until connected, the deadline (an error that asks for a firewall) or `interrupt`, as
// wait_for(). The socket is left blocking.
Result<UniqueFd> connect_tcp(const SocketAddress& where, TimePoint deadline, int interrupt = -1);
// The same with an address as the system has it. Errors begin with `what`.
Result<UniqueFd> connect_tcp(const sockaddr* where, socklen_t size, const std::string& what,
                             TimePoint deadline, int interrupt = -1);
// The same with a Unix socket, which blocks while too many wait there already. The error is the
// system's alone: "Connection refused".
Result<UniqueFd> connect_unix(const sockaddr* where, socklen_t size, TimePoint deadline);
// Blocks until somebody connects or the deadline. The socket is left blocking.
Result<UniqueFd> accept_tcp(int listener, TimePoint deadline);
Result<std::pair<UniqueFd, UniqueFd>> socket_pair();

Status set_nonblocking(int fd, bool on);
// Waits until `fd` can be read (POLLIN) or written (POLLOUT), as poll(2) says it. aborted, whatever
// `fd` is like, once the descriptor `interrupt` can be read; -1: there is none.
Status wait_for(int fd, short events, TimePoint deadline, int interrupt = -1);

// Whole buffers and frames on a blocking or non-blocking socket, without SIGPIPE.
Status send_all(int fd, std::string_view bytes, TimePoint deadline);
// The next frame. unavailable when the other side closed, deadline_exceeded, or data_loss.
Result<Frame> receive_frame(int fd, FrameDecoder& decoder, TimePoint deadline);

// The address of an abstract Unix socket: a name outside of the file system, freed with its socket.
// It belongs to the network namespace, in which every user may connect to it: check SO_PEERCRED.
struct AbstractAddress {
  // As much of the name as fits counts.
  explicit AbstractAddress(std::string_view name) {
    address.sun_family = AF_UNIX;
    // The zero before the name makes it an abstract one.
    const std::size_t length = name.copy(address.sun_path + 1, sizeof(address.sun_path) - 1);
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }

  sockaddr_un address{};
  socklen_t size = 0;
};

}  // namespace hvd
