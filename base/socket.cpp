#include "base/socket.h"

#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include "base/frame_sender.h"
#include "base/printable.h"
#include "base/text.h"

namespace hvd {
bool is_ip_address(const std::string& text) { return raw_address({text, 0}).ok(); }

Result<RawAddress> raw_address(const SocketAddress& where) {
  RawAddress raw;
  const Status wrong(Code::invalid_argument, cat(quoted(where.host), " is not an IP address"));
  // The system would look no further than the first NUL.
  if (where.host.find('\0') != std::string::npos) return wrong;
  auto* const v4 = reinterpret_cast<sockaddr_in*>(&raw.storage);
  if (inet_pton(AF_INET, where.host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(where.port);
    raw.size = sizeof(*v4);
    return raw;
  }
  auto* const v6 = reinterpret_cast<sockaddr_in6*>(&raw.storage);
  if (inet_pton(AF_INET6, where.host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(where.port);
    raw.size = sizeof(*v6);
    return raw;
  }
  return wrong;
}

namespace {

Result<UniqueFd> tcp_socket(int family, int extra_flags) {
  UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | extra_flags, 0));
  if (!fd) return Status::from_errno("socket", errno);
  return fd;
}

SocketAddress readable_address(const RawAddress& raw) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  SocketAddress address;
  if (raw.storage.ss_family == AF_INET6) {
    const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(&raw.storage);
    inet_ntop(AF_INET6, &v6->sin6_addr, text.data(), text.size());
    address.port = ntohs(v6->sin6_port);
  } else {
    const auto* const v4 = reinterpret_cast<const sockaddr_in*>(&raw.storage);
    inet_ntop(AF_INET, &v4->sin_addr, text.data(), text.size());
    address.port = ntohs(v4->sin_port);
  }
  address.host = text.data();
  return address;
}

void set_no_delay(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

std::string connect_to(const SocketAddress& where) { return cat("connect to ", where.to_string()); }

Status connect_error(const std::string& what, int error_number) {
  Status why = Status::from_errno(what, error_number);
  if (error_number != ETIMEDOUT) return why;
  return {why.code(), cat(why.message(), kAskFirewall)};
}

Result<UniqueFd> begin_connect(const sockaddr* where, socklen_t size, const std::string& what) {
  auto fd = tcp_socket(where->sa_family, SOCK_NONBLOCK);
  HVD_RETURN_IF_ERROR(fd.status().with_context(what));
  set_no_delay(fd->get());
  if (::connect(fd->get(), where, size) != 0 && errno != EINPROGRESS && errno != EINTR) {
    return connect_error(what, errno);
  }
  return fd;
}

}  // namespace

std::string SocketAddress::to_string() const {
  const bool v6 = host.find(':') != std::string::npos;
  return v6 ? cat("[", host, "]:", port) : cat(host, ":", port);
}

Status connect_error(const SocketAddress& where, int error_number) {
  return connect_error(connect_to(where), error_number);
}

Result<UniqueFd> listen_tcp(const SocketAddress& where, int backlog) {
  auto raw = raw_address(where);
  HVD_RETURN_IF_ERROR(raw.status());
  auto fd = tcp_socket(raw->storage.ss_family, 0);
  HVD_RETURN_IF_ERROR(fd.status());
  const int on = 1;
  ::setsockopt(fd->get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(fd->get(), raw->get(), raw->size) != 0 || ::listen(fd->get(), backlog) != 0) {
    return Status::from_errno(cat("listen on ", where.to_string()), errno);
  }
  return fd;
}

Result<SocketAddress> local_address(int fd) {
  RawAddress raw;
  raw.size = sizeof(raw.storage);
  if (::getsockname(fd, raw.get(), &raw.size) != 0) return Status::from_errno("getsockname", errno);
  return readable_address(raw);
}

Result<SocketAddress> peer_address(int fd) {
  RawAddress raw;
  raw.size = sizeof(raw.storage);
  if (::getpeername(fd, raw.get(), &raw.size) != 0) return Status::from_errno("getpeername", errno);
  return readable_address(raw);
}

Result<UniqueFd> begin_connect_tcp(const SocketAddress& where) {
  auto raw = raw_address(where);
  HVD_RETURN_IF_ERROR(raw.status());
  return begin_connect(raw->get(), raw->size, connect_to(where));
}

Result<UniqueFd> connect_tcp(const SocketAddress& where, TimePoint deadline, int interrupt) {
  auto raw = raw_address(where);
  HVD_RETURN_IF_ERROR(raw.status());
  return connect_tcp(raw->get(), raw->size, connect_to(where), deadline, interrupt);
}

Result<UniqueFd> connect_tcp(const sockaddr* where, socklen_t size, const std::string& what,
                             TimePoint deadline, int interrupt) {
  auto fd = begin_connect(where, size, what);
  HVD_RETURN_IF_ERROR(fd.status());
  const Status answered = wait_for(fd->get(), POLLOUT, deadline, interrupt);
  if (answered.code() == Code::deadline_exceeded) return connect_error(what, ETIMEDOUT);
  HVD_RETURN_IF_ERROR(answered.with_context(what));
  int error = 0;
  socklen_t length = sizeof(error);
  ::getsockopt(fd->get(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) return connect_error(what, error);
  HVD_RETURN_IF_ERROR(set_nonblocking(fd->get(), false));
  return fd;
}

Result<UniqueFd> accept_tcp(int listener, TimePoint deadline) {
  for (;;) {
    HVD_RETURN_IF_ERROR(wait_for(listener, POLLIN, deadline).with_context("accept"));
    UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    if (fd) {
      set_no_delay(fd.get());
      return fd;
    }
    if (errno != EINTR && errno != EAGAIN && errno != ECONNABORTED) {
      return Status::from_errno("accept", errno);
    }
  }
}

Result<UniqueFd> connect_unix(const sockaddr* where, socklen_t size, TimePoint deadline) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return Status::from_errno("socket", errno);
  if (deadline != kNever) {
    const int left = std::max(1, milliseconds_until(deadline, Clock::now()));
    const timeval timeout{left / 1000, left % 1000 * 1000};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  }
  while (::connect(fd.get(), where, size) != 0) {
    if (errno != EINTR) return Status(Code::unavailable, std::strerror(errno));
  }
  return fd;
}

Result<std::pair<UniqueFd, UniqueFd>> socket_pair() {
  std::array<int, 2> fds{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) != 0) {
    return Status::from_errno("socketpair", errno);
  }
  return std::pair(UniqueFd(fds[0]), UniqueFd(fds[1]));
}

Status set_nonblocking(int fd, bool on) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK) != 0) {
    return Status::from_errno("fcntl", errno);
  }
  return {};
}

Status wait_for(int fd, short events, TimePoint deadline, int interrupt) {
  for (;;) {
    std::array<pollfd, 2> polled{{{fd, events, 0}, {interrupt, POLLIN, 0}}};
    const int ready =
        ::poll(polled.data(), polled.size(), milliseconds_until(deadline, Clock::now()));
    if (ready > 0 && polled[1].revents != 0) return {Code::aborted, "interrupted"};
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return Status::from_errno("poll", errno);
    if (ready == 0 && Clock::now() >= deadline) return {Code::deadline_exceeded, "timed out"};
  }
}

Status send_all(int fd, std::string_view bytes, TimePoint deadline) {
  return send_off(fd, bytes, deadline);
}

Result<Frame> receive_frame(int fd, FrameDecoder& decoder, TimePoint deadline) {
  for (;;) {
    auto frame = decoder.next();
    HVD_RETURN_IF_ERROR(frame.status());
    if (frame->has_value()) return std::move(**frame);
    HVD_RETURN_IF_ERROR(wait_for(fd, POLLIN, deadline).with_context("receive"));
    std::array<char, 16384> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init)
    const ssize_t got = ::recv(fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got == 0) return Status(Code::unavailable, "the other side closed the connection");
    if (got > 0) {
      decoder.feed({buffer.data(), static_cast<std::size_t>(got)});
      // A worker gets its credential in such a frame.
      wipe(buffer.data(), static_cast<std::size_t>(got));
    } else if (errno != EINTR && errno != EAGAIN) {
      return Status::from_errno("receive", errno);
    }
  }
}

}  // namespace hvd
