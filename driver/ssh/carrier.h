// Carries the bytes of all sessions whose agents run: one thread, which moves what comes out of
// each SSH channel into a Unix socket and back, and never waits for one of them. What the driver
// does not read stays on the host: a channel is read only as far as the socket takes it, the socket
// only as far as the channel's window and the TCP connection take it.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "driver/core/agent_hold.h"
#include "driver/ssh/dial.h"
#include "driver/ssh/session.h"

namespace hvd::driver::ssh {

// A session whose channel belongs to an agent.
struct Cargo {
  std::unique_ptr<Proxy> proxy;  // before the session, which holds its socket
  SessionPtr session;
  ssh_channel channel = nullptr;
  std::string first_bytes;  // already received from the agent
};

class Carrier {
 public:
  static Result<std::unique_ptr<Carrier>> create();
  // Closes all sessions; their holds see the end.
  ~Carrier();
  Carrier(const Carrier&) = delete;
  Carrier& operator=(const Carrier&) = delete;

  struct Carried {
    UniqueFd link;  // the driver's end
    std::unique_ptr<AgentHold> hold;
  };
  // From any thread. The hold may outlive the carrier.
  Result<Carried> take(Cargo cargo);

 private:
  class Impl;
  explicit Carrier(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace hvd::driver::ssh
