// Where the members of a world come in: a listener, and those who have connected but not yet proved
// who they are. Strangers, garbage and the silent are shown out and harm nobody; how many of them
// are borne, and who has to go first, is said in base/security/pending_handshakes.h. For one
// thread: the control loop's, or that of the data connections, or that of shared memory.
#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/security/crypto.h"
#include "base/security/handshake.h"
#include "base/security/pending_handshakes.h"
#include "base/socket.h"
#include "base/status.h"
#include "runtime/net/connection.h"
#include "runtime/net/poller.h"

namespace hvd::runtime {

class Lobby {
 public:
  static constexpr std::size_t kMaxGuests = 1024;
  // A worker has several of these, and needs descriptors for its own work.
  static constexpr std::size_t kShareOfDescriptors = 8;
  static constexpr std::size_t kMoreThanExpected = 16;

  struct Arrival {
    std::string name;  // proved
    std::unique_ptr<Connection> connection;
  };

  // `purpose` says what a guest must have come for. `expected` members may come at once: so many
  // are borne in any case, up to `max_guests`.
  Lobby(Poller& poller, const Token& token, HandshakeIdentity self,
        std::chrono::milliseconds handshake_timeout, std::string_view purpose, std::size_t expected,
        std::size_t max_guests = kMaxGuests)
      : poller_(poller),
        token_(token),
        self_(std::move(self)),
        purpose_(purpose),
        pending_(std::min(max_guests, std::max(pending_limit(max_guests, kShareOfDescriptors),
                                               expected + kMoreThanExpected)),
                 handshake_timeout) {}
  ~Lobby() { close(); }
  Lobby(const Lobby&) = delete;
  Lobby& operator=(const Lobby&) = delete;

  // Port 0 lets the kernel choose. Returns where it listens.
  Result<SocketAddress> listen(const SocketAddress& where);
  // The same with a socket that listens already.
  Status attend(UniqueFd listener);
  bool is_open() const { return static_cast<bool>(listener_); }
  void close();

  bool knows(int fd) const;
  // Something happened on a descriptor that it knows. Returns somebody who has just proved himself.
  std::optional<Arrival> handle(const Poller::Event& event, TimePoint now);
  // Shows out those whose time is up; returns when to do so next.
  TimePoint expire(TimePoint now);

 private:
  struct Guest {
    std::unique_ptr<Connection> connection;
    HandshakeAcceptor handshake;
  };
  void welcome_guest(TimePoint now);
  // No descriptor, or no memory: a guest makes room, or the listener rests for a while.
  void on_accept_failed(const Status& why, TimePoint now);
  void show_out(int fd);

  Poller& poller_;
  Token token_;
  HandshakeIdentity self_;
  std::string purpose_;
  UniqueFd listener_;
  TimePoint rests_until_ = kNever;  // the listener is not watched meanwhile; kNever: it is
  std::map<int, Guest> guests_;
  PendingHandshakes<int> pending_;  // their descriptors
  CountedWarning warning_;
};

}  // namespace hvd::runtime
