// Brings agents to other machines: one SSH session per host (libssh), in which one command finds or
// receives the agent of this build and becomes it. Connections are made in parallel, a bounded
// number at a time, each step with its own deadline; afterwards one thread carries the bytes of all
// sessions. The host needs sshd, a POSIX sh at /bin/sh and a place to write; nothing of ours.
//
// Owned by the driver. start() and the destructor are for its thread; the callbacks come on threads
// of the launcher, never after the attempt was destroyed.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "driver/agent_hold.h"
#include "driver/preflight.h"

namespace hvd::driver::ssh {

enum class HostKeyCheck : std::uint8_t {
  accept_new,  // unknown hosts are taken and written to known_hosts; changed ones refused
  strict,      // unknown ones are refused, too
  off,         // nothing is compared and nothing written
};

struct Options {
  std::string agent_path;                   // of the hvd-agent to copy
  std::vector<std::string> identity_files;  // -i; tried before those of the configuration
  int port = 0;                             // -p: of hosts that say none; 0: as configured
  std::string config_file;                  // -F; empty: ~/.ssh/config and the system's; "none"
  std::string known_hosts_file;             // empty: as configured, else ~/.ssh/known_hosts
  std::string cache_directory;  // on the hosts; empty: ${XDG_CACHE_HOME:-$HOME/.cache}/hvd
  HostKeyCheck host_key_check = HostKeyCheck::accept_new;
  std::chrono::milliseconds connect_timeout{10'000};  // for resolve, connect, key exchange
  std::chrono::milliseconds step_timeout{30'000};     // for authentication, for starting the agent
  int parallel = 32;  // hosts that are being connected or copied to at the same time
};

struct Target {
  std::string destination;  // a name, an address, or an alias of the SSH configuration
  std::string user;         // empty: as configured, else this process's user
  int port = 0;             // 0: as configured, else 22
};

struct Callbacks {
  // A step begins, or a long one goes on: start_agent, while the agent is copied. The first call
  // means that the host's turn has come.
  std::function<void(Step step)> on_step;
  // Once: a running agent to which nothing was said yet, or why there is none.
  std::function<void(std::variant<AgentConnection, HostTrouble> result)> on_end;
};

class Launcher {
 public:
  explicit Launcher(Options options);
  // Gives up what is under way and closes all sessions. Nothing calls back any more, even if a
  // thread is stuck in reading a file and has to be left behind.
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  // One way to one agent, under way. Its destructor gives it up, unless it has ended.
  class Attempt {
   public:
    virtual ~Attempt() = default;
  };
  // Ends within start() only if the system gives no thread at all.
  std::unique_ptr<Attempt> start(Target target, Callbacks callbacks);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace hvd::driver::ssh
