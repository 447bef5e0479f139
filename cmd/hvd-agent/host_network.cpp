#include "cmd/hvd-agent/host_network.h"

#include <algorithm>
#include <cerrno>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <utility>

#include "base/machine/machine.h"
#include "base/machine/ports.h"
#include "base/security/random.h"
#include "base/socket.h"
#include "base/text.h"

namespace hvd::agent {
namespace {

constexpr int kBacklog = 4096;  // a crowd at once would else have to knock again
constexpr std::string_view kEverywhere = "all addresses";
constexpr std::string_view kListen = "listen on all addresses";
constexpr int kConnectionsPerTurn = 64;  // the link is served in between

// Bound to this port, or any free one for 0, on every address: IPv6 and IPv4 in one, or IPv4 alone
// where there is no IPv6.
Result<UniqueFd> bind_anywhere(std::uint16_t port) {
  const int both = 0;
  UniqueFd v6(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in6 any_v6{};
  any_v6.sin6_family = AF_INET6;
  any_v6.sin6_port = htons(port);
  if (v6 && ::setsockopt(v6.get(), IPPROTO_IPV6, IPV6_V6ONLY, &both, sizeof(both)) == 0 &&
      ::bind(v6.get(), reinterpret_cast<const sockaddr*>(&any_v6), sizeof(any_v6)) == 0) {
    return v6;
  }
  UniqueFd v4(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in any_v4{};
  any_v4.sin_family = AF_INET;
  any_v4.sin_port = htons(port);
  if (v4 && ::bind(v4.get(), reinterpret_cast<const sockaddr*>(&any_v4), sizeof(any_v4)) == 0) {
    return v4;
  }
  return Status::from_errno(kListen, errno);
}

std::uint16_t port_of(int socket) {
  const auto address = local_address(socket);
  return address.ok() ? address->port : std::uint16_t{0};
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The addresses of this host that are named, or are of interfaces that are; link-local ones are
// those of no host of a job.
std::vector<std::string> addresses_named(const std::vector<std::string>& names) {
  std::vector<std::string> addresses;
  for (const auto& interface : machine_interfaces()) {
    const bool named = contains(names, interface.name) || contains(names, interface.address);
    const bool link_local =
        interface.address.starts_with("fe80:") || interface.address.starts_with("169.254.");
    if (named && !link_local) addresses.push_back(interface.address);
  }
  return addresses;
}

// At each address on the same port: this one, or, for 0, one that is free at the first address. No
// address: all.
Result<std::vector<UniqueFd>> listen_at(const std::vector<std::string>& addresses,
                                        std::uint16_t port) {
  std::vector<UniqueFd> sockets;
  if (addresses.empty()) {
    auto everywhere = bind_anywhere(port);
    HVD_RETURN_IF_ERROR(everywhere.status());
    if (::listen(everywhere->get(), kBacklog) != 0) return Status::from_errno(kListen, errno);
    sockets.push_back(std::move(*everywhere));
  }
  for (const auto& address : addresses) {
    auto socket = listen_tcp({address, port}, kBacklog);
    HVD_RETURN_IF_ERROR(socket.status());
    HVD_RETURN_IF_ERROR(set_nonblocking(socket->get(), true));
    if (port == 0) port = port_of(socket->get());
    sockets.push_back(std::move(*socket));
  }
  return sockets;
}

std::string random_greeting() {
  std::string bytes(16, '\0');
  fill_random(bytes.data(), bytes.size());
  return to_hex(bytes);
}

}  // namespace

Result<std::uint16_t> find_free_port(const std::optional<PortRange>& range) {
  if (range) {
    return take_port(*range, 0, kEverywhere,
                     [](std::uint16_t tried) { return bind_anywhere(tried).status(); });
  }

  const std::uint16_t port =
      find_port(ephemeral_ports(), [](std::uint16_t tried) { return bind_anywhere(tried).ok(); });
  if (port != 0) return port;
  const auto bound = bind_anywhere(0);
  HVD_RETURN_IF_ERROR(bound.status());
  return port_of(bound->get());
}

Status ProbeListener::open(EventLoop& loop, const ListenRules& rules, TimePoint now) {
  const auto addresses = addresses_named(rules.listen_on);
  std::vector<UniqueFd> sockets;
  const auto take = [&](std::uint16_t port) {
    auto taken = listen_at(addresses, port);
    if (taken.ok()) sockets = std::move(*taken);
    return taken.status();
  };
  const std::string where = addresses.empty() ? std::string(kEverywhere) : join(addresses, ", ");
  HVD_RETURN_IF_ERROR(rules.range ? take_port(*rules.range, 0, where, take).status() : take(0));

  std::vector<Watch> watches;
  for (const auto& socket : sockets) {
    const int fd = socket.get();
    auto watch = loop.watch(fd, EPOLLIN, [this, fd](std::uint32_t) { on_connections(fd); });
    HVD_RETURN_IF_ERROR(watch.status());
    watches.push_back(std::move(*watch));
  }
  sockets_ = std::move(sockets);
  watches_ = std::move(watches);
  loop_ = &loop;
  port_ = port_of(sockets_.front().get());
  greeting_ = random_greeting();
  close_at_ = now + kOpenFor;
  return {};
}

void ProbeListener::close() {
  watches_.clear();
  sockets_.clear();
  close_at_ = kNever;
  paused_until_ = kNever;
}

void ProbeListener::on_time(TimePoint now) {
  if (now >= close_at_) return close();
  if (now < paused_until_) return;
  paused_until_ = kNever;
  connections_ = 0;
  for (const auto& socket : sockets_) loop_->change(socket.get(), EPOLLIN);
}

void ProbeListener::pause() {
  for (const auto& socket : sockets_) loop_->change(socket.get(), 0);
  paused_until_ = Clock::now() + kPause;
}

void ProbeListener::on_connections(int socket) {
  for (int i = 0; i < kConnectionsPerTurn; ++i) {
    const UniqueFd connection(::accept4(socket, nullptr, nullptr, SOCK_CLOEXEC));
    if (!connection) {
      if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return;
      // Without descriptors or memory the same connection would wake the loop again and again.
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) return pause();
    } else {
      // The buffer of a new connection takes it whole.
      [[maybe_unused]] const ssize_t sent =
          ::send(connection.get(), greeting_.data(), greeting_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    if (++connections_ >= kMaxConnectionsPerPause) return pause();
  }
}

}  // namespace hvd::agent
