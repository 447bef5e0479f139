// The user's options for SSH connections. A value.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace hvd::driver::ssh {

enum class HostKeyCheck : std::uint8_t {
  accept_new,  // accepts unknown hosts and adds them to known_hosts; refuses changed keys
  strict,      // refuses unknown hosts as well
  off,         // compares nothing and writes nothing
};

struct Options {
  std::string agent_path;                   // of the hvd-agent that is copied
  std::vector<std::string> identity_files;  // -i; tried before those of the configuration
  int port = 0;                             // -p: of hosts without a port; 0: as configured
  std::string config_file;                  // -F; empty: ~/.ssh/config and the system's; "none"
  std::string known_hosts_file;             // empty: as configured, else ~/.ssh/known_hosts
  std::string cache_directory;  // on the hosts; empty: ${XDG_CACHE_HOME:-$HOME/.cache}/hvd
  HostKeyCheck host_key_check = HostKeyCheck::accept_new;
  std::chrono::milliseconds connect_timeout{10'000};  // for resolve, connect, key exchange
  std::chrono::milliseconds step_timeout{30'000};     // for authentication, for starting the agent
  int parallel = 32;  // hosts that are connected or copied to at the same time
};

}  // namespace hvd::driver::ssh
