// Many agents in one process, for what grows with the number of hosts: they join a real hvdrun
// (--join-bind) over TLS, answer as agents do, and start nothing. When all workers are launched
// they are kept "running" for a while, and then all end well. One thread, and no process at all.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "base/clock.h"
#include "base/security/crypto.h"
#include "base/socket.h"
#include "base/status.h"

namespace hvd::test {

struct PretendAgentsOptions {
  SocketAddress where;  // of hvdrun
  int hosts = 1;
  int slots = 1;                      // of each host
  int joining_at_once = 100;          // handshakes under way
  std::chrono::milliseconds hold{0};  // from the last launch to the workers' end
  std::function<void()> on_all_launched = [] {};
};

struct PretendAgentsReport {
  int joined = 0;
  int launched = 0;
  int said_goodbye = 0;     // hosts that were told to shut down
  int retries = 0;          // connections that ended before the host was accepted
  std::uint64_t bytes = 0;  // payloads of the frames that came, all hosts together
  double joined_after = 0;  // seconds from the first connection
  double launched_after = 0;
  double longest_gap = 0;  // seconds, between two heartbeats to one host
};

// Returns when every host has ended, or an error that says how far it came at the deadline.
Result<PretendAgentsReport> run_pretend_agents(const Token& token,
                                               const PretendAgentsOptions& options,
                                               TimePoint deadline);

}  // namespace hvd::test
