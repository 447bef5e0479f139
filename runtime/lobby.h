// Where the members of a world come in: a listener, and those who have connected but not yet proved
// who they are. Strangers, garbage and the silent are shown out and harm nobody; at most
// `max_guests` wait at a time. For one thread: the control loop's, or that of the data connections,
// or that of shared memory.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/crypto.h"
#include "base/handshake.h"
#include "base/socket.h"
#include "base/status.h"
#include "runtime/connection.h"
#include "runtime/messages.h"
#include "runtime/poller.h"

namespace hvd::runtime {

class Lobby {
 public:
  static constexpr std::size_t kMaxGuests = 1024;

  struct Arrival {
    std::string name;  // proved
    std::unique_ptr<Connection> connection;
  };

  // `purpose` says what a guest must have come for.
  Lobby(Poller& poller, const Token& token, HandshakeIdentity self,
        std::chrono::milliseconds handshake_timeout, std::string_view purpose,
        std::size_t max_guests = kMaxGuests)
      : poller_(poller),
        token_(token),
        self_(std::move(self)),
        handshake_timeout_(handshake_timeout),
        purpose_(purpose),
        max_guests_(max_guests) {}
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
    TimePoint until;
  };
  void welcome_guest(TimePoint now);
  void show_out(int fd);

  Poller& poller_;
  Token token_;
  HandshakeIdentity self_;
  std::chrono::milliseconds handshake_timeout_;
  std::string purpose_;
  std::size_t max_guests_;
  UniqueFd listener_;
  std::map<int, Guest> guests_;
};

}  // namespace hvd::runtime
