// One SSH session, its channel, and a Unix socket whose other end belongs to the driver: copies
// bytes between channel and socket without blocking. For the thread of the TunnelMultiplexer;
// internal header of this folder.
#pragma once

#include <array>
#include <cstdint>
#include <libssh/callbacks.h>
#include <memory>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "base/descriptors.h"
#include "driver/core/stderr_tail.h"
#include "driver/ssh/deadline.h"
#include "driver/ssh/host_connection.h"
#include "driver/ssh/session.h"

namespace hvd::driver::ssh {

// A session whose channel belongs to an agent.
struct TunnelPayload {
  std::unique_ptr<Proxy> proxy;  // before the session, which owns its socket
  SessionPtr session;
  ssh_channel channel = nullptr;
  std::string first_bytes;  // already received from the agent
};

// The end of a tunnel, shared by its handle and the multiplexer.
struct TunnelEnd {
  EventFlag ended;
  std::mutex mutex;
  std::string reason;  // once it has ended
};

class Tunnel {
 public:
  // One buffer serves all tunnels.
  using Buffer = std::array<char, std::size_t{64} << 10>;

  Tunnel(TunnelPayload payload, UniqueFd socket, std::shared_ptr<TunnelEnd> end);
  ~Tunnel();
  Tunnel(const Tunnel&) = delete;
  Tunnel& operator=(const Tunnel&) = delete;

  int session_fd() const { return payload_.session == nullptr ? -1 : session_fd_; }
  int socket_fd() const { return socket_.get(); }
  // The epoll events to wait for.
  std::uint32_t session_events() const;
  std::uint32_t socket_events() const;
  // The time at which the tunnel must be pumped even without an event.
  TimePoint close_at() const { return close_at_; }

  // Copies as much as possible without blocking. True if it should be called again soon, without an
  // event.
  bool pump(Buffer& buffer);
  // The driver has given the agent up.
  void drop();
  // Nothing is left to copy: the tunnel is to be deleted.
  bool finished() const { return !socket_; }
  const std::shared_ptr<TunnelEnd>& end() const { return end_; }

 private:
  ssh_session session() const { return payload_.session.get(); }
  bool may_take_input() const;
  bool read_errors(Buffer& buffer);
  bool read_output(Buffer& buffer);
  bool write_input(Buffer& buffer);
  bool write_to_agent();
  bool flush_to_driver();
  void close_if_ended();
  void close_if_held_open();
  void close(const std::string& reason);
  std::string exit_or(const std::string& other) const { return exit_.empty() ? other : exit_; }

  TunnelPayload payload_;
  UniqueFd socket_;
  std::shared_ptr<TunnelEnd> end_;
  ssh_channel_callbacks_struct callbacks_{};
  int session_fd_ = -1;
  std::string to_driver_;
  std::string to_agent_;
  bool input_ended_ = false;    // the driver closed its end, or shut it down for writing
  bool driver_closed_ = false;  // nobody reads the other end of the socket
  bool output_ended_ = false;
  TimePoint close_at_ = kNever;
  std::string exit_;  // the agent's exit in words; empty: unknown
  StderrTail errors_;
};

}  // namespace hvd::driver::ssh
