#include "driver/ssh/host_connection.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <utility>

#include "base/socket.h"
#include "base/text.h"

namespace hvd::driver::ssh {
namespace {

// After this long without an answer the next address is tried as well (RFC 8305 recommends it).
constexpr std::chrono::milliseconds kNextAddressAfter{250};
// The kernel's upper bound of the time between two retransmissions, if it has the option: after a
// short network failure the connection continues within that time, and not only after twice the
// length of the failure.
constexpr int kTcpRtoMaxMs = 44;
constexpr int kMostUnsent = 128 << 10;  // bytes; the kernel doubles it
constexpr int kLongestRetransmissionMs = 1'000;

struct Lookup {
  std::string host;
  std::string service;
  addrinfo hints{};
  int error = 0;
  int error_number = 0;
  addrinfo* found = nullptr;
  Lookup() = default;
  Lookup(const Lookup&) = delete;
  Lookup& operator=(const Lookup&) = delete;
  ~Lookup() {
    if (found != nullptr) ::freeaddrinfo(found);
  }
  void run() {
    error = ::getaddrinfo(host.c_str(), service.c_str(), &hints, &found);
    error_number = errno;
  }
};

void set_option(int fd, int level, int name, int value) {
  ::setsockopt(fd, level, name, &value, sizeof value);  // each is an improvement, none is needed
}

void tune(int fd) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  // Data in the kernel's buffer delays every heartbeat, so the buffer stays small.
  set_option(fd, SOL_SOCKET, SO_SNDBUF, kMostUnsent);
  set_option(fd, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1);
  set_option(fd, IPPROTO_TCP, kTcpRtoMaxMs, kLongestRetransmissionMs);
}

struct Attempt {
  const Endpoint* endpoint = nullptr;
  UniqueFd socket;
  int error = 0;  // 0: under way
};

Status bind_to(int fd, const std::string& address, int family) {
  addrinfo hints{};
  hints.ai_family = family;
  hints.ai_flags = AI_NUMERICHOST;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(address.c_str(), nullptr, &hints, &found) != 0) {
    return {Code::invalid_argument,
            cat("BindAddress ", address, " is not an address of this family")};
  }
  const int result = ::bind(fd, found->ai_addr, found->ai_addrlen);
  const int error = errno;
  ::freeaddrinfo(found);
  return result == 0 ? Status() : Status::from_errno(cat("bind to ", address), error);
}

Attempt begin(const Endpoint& endpoint, const std::string& bind_address) {
  Attempt attempt{.endpoint = &endpoint, .socket = {}, .error = 0};
  attempt.socket.reset(
      ::socket(endpoint.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!attempt.socket) {
    attempt.error = errno;
    return attempt;
  }

  const int fd = attempt.socket.get();
  tune(fd);
  if (!bind_address.empty() && !bind_to(fd, bind_address, endpoint.address.ss_family).ok()) {
    attempt.error = EADDRNOTAVAIL;
    return attempt;
  }
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&endpoint.address), endpoint.size) != 0 &&
      errno != EINPROGRESS) {
    attempt.error = errno;
  }
  return attempt;
}

std::string numeric(const sockaddr_storage& address, socklen_t size) {
  std::array<char, NI_MAXHOST> text{};
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, text.data(), text.size(),
                    nullptr, 0, NI_NUMERICHOST) != 0) {
    return {};
  }
  return text.data();
}

std::string failures(const std::vector<Attempt>& attempts) {
  std::vector<std::string> parts;
  for (const Attempt& attempt : attempts) {
    parts.push_back(
        cat(attempt.endpoint->to_string(), ": ",
            attempt.error == 0 ? cat("no answer", kAskFirewall) : std::strerror(attempt.error)));
  }
  return join(parts, "; ");
}

// The first attempt that is connected; null: there is none yet. Failed attempts get their errors.
Attempt* find_connected(std::vector<Attempt>& attempts, const std::vector<pollfd>& fds,
                        const std::vector<std::size_t>& which) {
  for (std::size_t i = 0; i < fds.size(); ++i) {
    if (fds[i].revents == 0) continue;
    Attempt& attempt = attempts[which[i]];
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(attempt.socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error == 0) return &attempt;
    attempt.error = error;
    attempt.socket.reset();
  }
  return nullptr;
}

}  // namespace

std::string Endpoint::to_string() const { return numeric(address, size); }

Result<std::vector<Endpoint>> resolve(const std::string& host, int port, const std::string& family,
                                      const Deadline& deadline) {
  const auto lookup = std::make_shared<Lookup>();
  lookup->host = host;
  lookup->service = std::to_string(port);
  lookup->hints.ai_socktype = SOCK_STREAM;
  lookup->hints.ai_family = AF_UNSPEC;
  if (family == "inet") lookup->hints.ai_family = AF_INET;
  if (family == "inet6") lookup->hints.ai_family = AF_INET6;
  lookup->hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  lookup->run();

  if (lookup->error == EAI_NONAME) {
    // It is a name and not an address. A name service may take any time to answer, and the call
    // cannot be interrupted.
    lookup->hints.ai_flags = AI_NUMERICSERV;
    const Status status = call_with_deadline(deadline, [lookup] { lookup->run(); });
    if (!status.ok()) {
      return status.code() == Code::deadline_exceeded
                 ? Status(Code::deadline_exceeded, "the name service did not answer in time")
                 : status;
    }
  }

  if (lookup->error != 0) {
    return Status(Code::unavailable, lookup->error == EAI_SYSTEM
                                         ? std::string(std::strerror(lookup->error_number))
                                         : std::string(::gai_strerror(lookup->error)));
  }

  std::vector<Endpoint> endpoints;
  for (const addrinfo* i = lookup->found; i != nullptr; i = i->ai_next) {
    Endpoint endpoint;
    endpoint.size = i->ai_addrlen;
    std::memcpy(&endpoint.address, i->ai_addr, i->ai_addrlen);
    endpoints.push_back(endpoint);
  }
  return endpoints;
}

Result<ConnectedSocket> connect_first(const std::vector<Endpoint>& endpoints,
                                      const std::string& bind_address, const Deadline& deadline) {
  std::vector<Attempt> attempts;
  attempts.reserve(endpoints.size());
  TimePoint next = Clock::now();
  while (true) {
    if (attempts.size() < endpoints.size() && Clock::now() >= next) {
      attempts.push_back(begin(endpoints[attempts.size()], bind_address));
      if (attempts.back().error != 0) continue;
      next = Clock::now() + kNextAddressAfter;
    }

    std::vector<pollfd> fds;
    std::vector<std::size_t> which;
    for (std::size_t i = 0; i < attempts.size(); ++i) {
      if (attempts[i].error != 0) continue;
      fds.push_back({.fd = attempts[i].socket.get(), .events = POLLOUT, .revents = 0});
      which.push_back(i);
    }
    if (fds.empty()) {
      if (attempts.size() == endpoints.size()) {
        return Status(Code::unavailable, failures(attempts));
      }
      next = Clock::now();  // all have failed: the next address is tried at once
      continue;
    }

    const bool more = attempts.size() < endpoints.size();
    if (const Status status = deadline.poll(fds, more ? next : kNever); !status.ok()) {
      return status.code() == Code::deadline_exceeded
                 ? Status(Code::deadline_exceeded, failures(attempts))
                 : status;
    }
    Attempt* const winner = find_connected(attempts, fds, which);
    if (winner == nullptr) continue;

    sockaddr_storage local{};
    socklen_t size = sizeof local;
    ConnectedSocket connected_socket{.socket = std::move(winner->socket),
                                     .local_address = {},
                                     .peer_address = winner->endpoint->to_string()};
    if (::getsockname(connected_socket.socket.get(), reinterpret_cast<sockaddr*>(&local), &size) ==
        0) {
      connected_socket.local_address = numeric(local, size);
    }
    return connected_socket;
  }
}

BannerResult await_banner(int socket, const Deadline& deadline) {
  std::array<char, 256> seen{};
  std::size_t before = 0;
  while (true) {
    const ssize_t count = ::recv(socket, seen.data(), seen.size(), MSG_PEEK | MSG_DONTWAIT);
    if (count == 0) {
      return {.status = {Code::unavailable,
                         before == 0 ? "it closed the connection at once, without an SSH banner"
                                     : "it closed the connection in the middle of its banner"},
              .retry = Retry::a_few_times};
    }
    if (count < 0 && errno != EAGAIN && errno != EINTR) {
      const int error = errno;
      return {.status = Status::from_errno("wait for its SSH banner", error),
              .retry = error == ECONNRESET ? Retry::a_few_times : Retry::never};
    }

    if (count > 0) {
      const std::string_view text(seen.data(), static_cast<std::size_t>(count));
      // Other lines before the banner are allowed (RFC 4253, 4.2).
      if (text.starts_with("SSH-") || text.find("\nSSH-") != std::string_view::npos) return {};
      const std::size_t end = text.find_first_of("\r\n");
      if (end != std::string_view::npos || text.size() == seen.size()) {
        // It may still be such a line, or another protocol altogether: the next second shows it.
        const auto soon = std::min(deadline.ends(), Clock::now() + std::chrono::seconds(1));
        if (before == text.size() || text.size() == seen.size() || Clock::now() >= soon) {
          const std::string line(text.substr(0, end));
          const bool is_busy = line.find("MaxStartups") != std::string::npos ||
                               line.starts_with("Not allowed at this time");
          return {.status = {Code::unavailable,
                             cat("the server there is not an SSH server: it says \"", line, "\"")},
                  .retry = is_busy ? Retry::until_deadline : Retry::never};
        }
      }
    }

    // Bytes that were only peeked at keep the socket readable, so poll() cannot tell of new ones.
    const bool grew = count > 0 && static_cast<std::size_t>(count) > before;
    if (grew) before = static_cast<std::size_t>(count);
    Status status;
    if (count > 0) {
      status = deadline.poll({}, Clock::now() + std::chrono::milliseconds(grew ? 50 : 250));
    } else {
      status = deadline.wait_for(socket, POLLIN);
    }
    if (!status.ok()) {
      if (status.code() != Code::deadline_exceeded) return {.status = status};
      return {.status = {Code::deadline_exceeded,
                         "it accepted the connection but did not send an SSH banner"}};
    }
  }
}

}  // namespace hvd::driver::ssh
