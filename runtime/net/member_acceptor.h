// Accepts the connections of a world's members: a listener, and the connections whose peers have
// not yet proved their identity. Connections that send anything but a valid handshake, or nothing
// in time, are closed; base/security/pending_handshakes.h says how many of them are kept, and which
// are closed first. For one thread: that of the control loop, of the data connections, or of shared
// memory.
#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/port_range.h"
#include "base/security/crypto.h"
#include "base/security/handshake.h"
#include "base/security/pending_handshakes.h"
#include "base/socket.h"
#include "base/status.h"
#include "runtime/net/connection.h"
#include "runtime/net/poller.h"

namespace hvd::runtime {

class MemberAcceptor {
 public:
  static constexpr std::size_t kMaxPending = 1024;
  // A worker has several acceptors, and needs descriptors for its own work.
  static constexpr std::size_t kShareOfDescriptors = 8;
  static constexpr std::size_t kMoreThanExpected = 16;

  struct Arrival {
    std::string name;  // proved by the handshake
    std::unique_ptr<Connection> connection;
    SessionKeys keys;
  };

  // `purpose` is what the peer's handshake must be for. `expected` members may connect at once: at
  // least so many pending connections are kept, up to `max_pending`.
  MemberAcceptor(Poller& poller, const Token& token, HandshakeIdentity self,
                 std::chrono::milliseconds handshake_timeout, std::string_view purpose,
                 std::size_t expected, std::size_t max_pending = kMaxPending)
      : poller_(poller),
        token_(token),
        self_(std::move(self)),
        purpose_(purpose),
        pending_(std::min(max_pending, std::max(pending_limit(max_pending, kShareOfDescriptors),
                                                expected + kMoreThanExpected)),
                 handshake_timeout) {}
  ~MemberAcceptor() { close(); }
  MemberAcceptor(const MemberAcceptor&) = delete;
  MemberAcceptor& operator=(const MemberAcceptor&) = delete;

  // At this IP address, on one of these ports. Returns the address that it listens on.
  Result<SocketAddress> listen(const std::string& address, const ListenPorts& ports);
  // The same with a socket that listens already.
  Status adopt(UniqueFd listener);
  bool is_open() const { return static_cast<bool>(listener_); }
  void close();

  bool owns(int fd) const;
  // An event of a descriptor that it owns. Returns a member that has just proved its identity.
  std::optional<Arrival> handle(const Poller::Event& event, TimePoint now);
  // Closes connections that took too long; returns when to call again.
  TimePoint expire(TimePoint now);
  // Why no connection could be accepted for about a second: no descriptor or no memory is left,
  // and no pending handshake whose end would free some. ok: there is no such error.
  Status cannot_accept() const;

 private:
  struct Candidate {
    std::unique_ptr<Connection> connection;
    HandshakeAcceptor handshake;
  };
  void accept_candidate(TimePoint now);
  // No descriptor or no memory is left: the oldest candidate makes room, or the listener pauses.
  void on_accept_failed(const Status& why, TimePoint now);
  void drop(int fd);

  Poller& poller_;
  Token token_;
  HandshakeIdentity self_;
  std::string purpose_;
  UniqueFd listener_;
  TimePoint paused_until_ = kNever;  // the listener is not watched until then; kNever: it is
  int pauses_ = 0;                   // in a row, without an accepted connection between them
  Status last_error_;                // of accepting
  std::map<int, Candidate> candidates_;
  PendingHandshakes<int> pending_;  // the candidates' descriptors
  CountedWarning warning_;
};

}  // namespace hvd::runtime
