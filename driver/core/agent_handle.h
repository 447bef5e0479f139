// A running agent: a child of this process, the far end of an SSH session, or a program that has
// joined by itself. It sends and receives the frames of base/protocol/agent_link.h over
// AgentConnection::link, through whatever tunnel.
#pragma once

#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

#include "base/clock.h"
#include "base/descriptors.h"

namespace hvd::driver {

// Owns an agent: the destructor kills it. For the driver's thread; nothing here blocks for longer
// than a process takes to die of SIGKILL.
class AgentHandle {
 public:
  virtual ~AgentHandle() = default;
  AgentHandle() = default;
  AgentHandle(const AgentHandle&) = delete;
  AgentHandle& operator=(const AgentHandle&) = delete;

  // Readable once the agent, or the tunnel to it, has ended. Stays open as long as this object.
  virtual int ended_fd() const = 0;
  // Kills the agent. For an agent on another host it closes only the tunnel: the agent sees the end
  // of its link, if it can, and kills its workers.
  virtual void kill() = 0;
  // The end of the agent in words: "was killed by SIGKILL (signal 9)", "closed its link", with the
  // last lines of its stderr where they may help. To be called once, after the end.
  virtual std::string reap() = 0;
  // True if this process is the reason for the agent's silence: bytes have arrived that the tunnel
  // has not passed on, or bytes for the agent wait for longer than `pace` although the connection
  // would take them. Bytes that were sent just now do not count: they wait for their turn even if
  // the host is lost.
  virtual bool behind(TimePoint /*now*/, Duration /*pace*/) const { return false; }
  // The pid of a child of this process; -1: it is not one.
  virtual pid_t pid() const { return -1; }
};

struct AgentConnection {
  UniqueFd link;  // a Unix stream socket, blocking
  std::unique_ptr<AgentHandle> handle;
  // The ends of the TCP connection to the host. Both are empty for an agent on this machine, and
  // behind a proxy.
  std::string local_address;             // this machine, as seen by the host
  std::string peer_address;              // the host
  std::vector<std::string> labels = {};  // of the host, if its agent has joined: KEY=VALUE
};

}  // namespace hvd::driver
