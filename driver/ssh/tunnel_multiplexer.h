// Moves the bytes of all SSH sessions whose agents run: one thread, which copies between each SSH
// channel and a Unix socket and never blocks on one of them. Backpressure reaches the host: a
// channel is read only as far as the socket takes the bytes, and the socket only as far as the
// channel's window and the TCP connection take them.
#pragma once

#include <memory>

#include "base/status.h"
#include "driver/core/agent_handle.h"
#include "driver/ssh/tunnel.h"

namespace hvd::driver::ssh {

class TunnelMultiplexer {
 public:
  static Result<std::unique_ptr<TunnelMultiplexer>> create();
  // Closes all sessions, whose handles report their end.
  ~TunnelMultiplexer();
  TunnelMultiplexer(const TunnelMultiplexer&) = delete;
  TunnelMultiplexer& operator=(const TunnelMultiplexer&) = delete;

  struct OpenTunnel {
    UniqueFd link;  // the driver's end
    std::unique_ptr<AgentHandle> handle;
  };
  // From any thread. The handle may outlive the multiplexer.
  Result<OpenTunnel> add(TunnelPayload payload);

 private:
  class Impl;
  explicit TunnelMultiplexer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hvd::driver::ssh
