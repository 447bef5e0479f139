// What this host tells of its network when it says that it is ready: its addresses, a port that is
// free, and the place where other hosts can try whether they reach it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "cmd/hvd-agent/event_loop.h"

namespace hvd::agent {

// A TCP port on which nobody listens, on no address, outside of the ephemeral ones if there is such
// a port (base/machine/ports.h); 0 if there is none at all.
std::uint16_t find_free_port();

// Listens on all addresses and says a random greeting to everybody who connects, and nothing else.
// Visitors cost nothing that lasts: nothing is read from them, no connection is kept. So many are
// served at a time; then others wait for a moment in the kernel's queue. Owned by the supervisor,
// on its thread.
class ProbeListener {
 public:
  static constexpr int kMaxConnectionsPerPause = 1'000;
  static constexpr std::chrono::milliseconds kPause{50};
  static constexpr std::chrono::seconds kOpenFor{60};

  // An error means that it could not listen; port() is 0 then.
  Status open(EventLoop& loop, TimePoint now);
  void close();
  std::uint16_t port() const { return port_; }
  const std::string& greeting() const { return greeting_; }

  TimePoint deadline() const { return std::min(close_at_, paused_until_); }
  void on_time(TimePoint now);

 private:
  void on_connections();
  void pause();

  UniqueFd socket_;
  Watch watch_;
  std::uint16_t port_ = 0;
  std::string greeting_;
  int connections_ = 0;  // since the last rest
  TimePoint close_at_ = kNever;
  TimePoint paused_until_ = kNever;  // kNever: it does not rest
  EventLoop* loop_ = nullptr;
};

}  // namespace hvd::agent
