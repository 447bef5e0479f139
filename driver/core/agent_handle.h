// An agent, however it came to run: a child of this process, the far end of an SSH session, a
// program that came by itself. What it says travels over AgentConnection::link as the frames of
// base/protocol/agent_link.h, whatever lies between.
#pragma once

#include <memory>
#include <string>
#include <sys/types.h>

#include "base/unique_fd.h"

namespace hvd::driver {

// Keeps an agent, and ends it when it is destroyed. For the driver's thread; nothing here blocks
// for longer than a process takes to die of SIGKILL.
class AgentHandle {
 public:
  virtual ~AgentHandle() = default;
  AgentHandle() = default;
  AgentHandle(const AgentHandle&) = delete;
  AgentHandle& operator=(const AgentHandle&) = delete;

  // Readable once the agent, or the way to it, has ended. Stays open as long as this object.
  virtual int ended_fd() const = 0;
  // Ends it without a goodbye. Of an agent on another host only the way to it: the agent sees the
  // end of its link, if it can, and kills what is there.
  virtual void kill() = 0;
  // To be called once it has ended, once: "was killed by SIGKILL (signal 9)", "closed its link",
  // with what it said on stderr where that may help.
  virtual std::string reap() = 0;
  // This process is behind with it: bytes have arrived that it has not handed on, or bytes for the
  // agent wait although the way would take them. The agent's silence is not its own then.
  virtual bool behind() const { return false; }
  // If it is a child of this process; else -1.
  virtual pid_t pid() const { return -1; }
};

struct AgentConnection {
  UniqueFd link;  // a Unix stream socket, blocking
  std::unique_ptr<AgentHandle> handle;
  // Of the TCP connection to the host; empty for an agent on this machine, and where a proxy stands
  // between.
  std::string local_address;  // what that host sees this machine as
  std::string peer_address;   // where it was reached
};

}  // namespace hvd::driver
