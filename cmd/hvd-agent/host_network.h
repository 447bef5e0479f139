// This host's network, for the message Ready: a free port, and a listener by which other hosts test
// whether they can connect.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/port_range.h"
#include "base/status.h"
#include "cmd/hvd-agent/event_loop.h"

namespace hvd::agent {

// The driver's rules for this host's listeners.
struct ListenRules {
  std::optional<PortRange> range = std::nullopt;  // nothing: any port
  // Interfaces by name, or addresses; empty, or if there is none such: all addresses.
  std::vector<std::string> listen_on = {};
};

// A TCP port that is free on all addresses: of the range, or, without one, outside of the ephemeral
// ports if there is such a port (base/machine/ports.h).
Result<std::uint16_t> find_free_port(const std::optional<PortRange>& range);

// Listens and sends a random greeting on each connection, then closes it; nothing is read. After
// kMaxConnectionsPerPause connections it pauses, and further ones wait in the kernel's queue. Owned
// by the supervisor, on its thread.
class ProbeListener {
 public:
  static constexpr int kMaxConnectionsPerPause = 1'000;
  static constexpr std::chrono::milliseconds kPause{50};
  static constexpr std::chrono::seconds kOpenFor{60};

  // An error means that it could not listen; port() is 0 then.
  Status open(EventLoop& loop, const ListenRules& rules, TimePoint now);
  void close();
  std::uint16_t port() const { return port_; }
  const std::string& greeting() const { return greeting_; }

  TimePoint deadline() const { return std::min(close_at_, paused_until_); }
  void on_time(TimePoint now);

 private:
  void on_connections(int socket);
  void pause();

  std::vector<UniqueFd> sockets_;  // one for each address, or one for all
  std::vector<Watch> watches_;     // of these
  std::uint16_t port_ = 0;
  std::string greeting_;
  int connections_ = 0;  // since the last pause
  TimePoint close_at_ = kNever;
  TimePoint paused_until_ = kNever;  // kNever: not paused
  EventLoop* loop_ = nullptr;
};

}  // namespace hvd::agent
