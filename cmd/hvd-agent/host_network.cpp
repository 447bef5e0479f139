#include "cmd/hvd-agent/host_network.h"

#include <array>
#include <cerrno>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <utility>

#include "base/machine/ports.h"
#include "base/security/random.h"
#include "base/socket.h"

namespace hvd::agent {
namespace {

constexpr int kBacklog = 4096;           // a crowd at once would else have to knock again
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
  return Status::from_errno("listen on all addresses", errno);
}

std::uint16_t port_of(int socket) {
  const auto address = local_address(socket);
  return address.ok() ? address->port : std::uint16_t{0};
}

std::string random_hex() {
  std::array<unsigned char, 16> bytes{};
  fill_random(bytes.data(), bytes.size());
  std::string text;
  for (const unsigned byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

}  // namespace

std::uint16_t find_free_port() {
  const std::uint16_t port =
      find_port(ephemeral_ports(), [](std::uint16_t tried) { return bind_anywhere(tried).ok(); });
  if (port != 0) return port;
  const auto bound = bind_anywhere(0);
  return bound.ok() ? port_of(bound->get()) : std::uint16_t{0};
}

Status ProbeListener::open(EventLoop& loop, TimePoint now) {
  auto socket = bind_anywhere(0);
  HVD_RETURN_IF_ERROR(socket.status());
  if (::listen(socket->get(), kBacklog) != 0) {
    return Status::from_errno("listen on all addresses", errno);
  }
  auto watch = loop.watch(socket->get(), EPOLLIN, [this](std::uint32_t) { on_connections(); });
  HVD_RETURN_IF_ERROR(watch.status());
  socket_ = std::move(*socket);
  watch_ = std::move(*watch);
  loop_ = &loop;
  port_ = port_of(socket_.get());
  greeting_ = random_hex();
  close_at_ = now + kOpenFor;
  return {};
}

void ProbeListener::close() {
  watch_.end();
  socket_.reset();
  close_at_ = kNever;
  paused_until_ = kNever;
}

void ProbeListener::on_time(TimePoint now) {
  if (now >= close_at_) return close();
  if (now < paused_until_) return;
  paused_until_ = kNever;
  connections_ = 0;
  loop_->change(socket_.get(), EPOLLIN);
}

void ProbeListener::pause() {
  loop_->change(socket_.get(), 0);
  paused_until_ = Clock::now() + kPause;
}

void ProbeListener::on_connections() {
  for (int i = 0; i < kConnectionsPerTurn; ++i) {
    const UniqueFd connection(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
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
