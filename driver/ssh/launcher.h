// Brings agents to other machines: one SSH session per host (libssh), in which one command finds or
// receives the agent of this build and becomes it. Connections are made in parallel, a bounded
// number at a time, each step with its own deadline; afterwards one thread carries the bytes of all
// sessions. The host needs sshd, a POSIX sh at /bin/sh and a place to write; nothing of ours.
//
// Owned by the driver. start() and the destructor are for its thread; the callbacks are called on
// threads of the launcher, and never after the attempt was destroyed.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "driver/core/agent_handle.h"
#include "driver/core/ssh_options.h"
#include "driver/job/preflight.h"

namespace hvd::driver::ssh {

struct Target {
  std::string destination;  // a name, an address, or an alias of the SSH configuration
  std::string user;         // empty: as configured, else this process's user
  int port = 0;             // 0: as configured, else 22
};

struct Callbacks {
  // A step begins; start_agent is also reported again and again while the agent is copied. The
  // first call means that the host has left the queue.
  std::function<void(Step step)> on_step;
  // One line for the user; a launcher says each line once, whichever host it comes from.
  std::function<void(const std::string& text)> on_warning;
  // Once: a running agent to which nothing was sent yet, or the reason why there is none.
  std::function<void(std::variant<AgentConnection, HostError> result)> on_end;
};

class Launcher {
 public:
  explicit Launcher(Options options);
  // Stops all attempts and closes all sessions. There are no callbacks afterwards, even if a thread
  // hangs in the read of a file and has to be left behind.
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  // One agent that is being started. The destructor stops the attempt, unless it has ended.
  class Attempt {
   public:
    virtual ~Attempt() = default;
  };
  // on_end comes from within start() only if the system gives no thread at all.
  std::unique_ptr<Attempt> start(Target target, Callbacks callbacks);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace hvd::driver::ssh
