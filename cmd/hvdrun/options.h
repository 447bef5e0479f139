// hvdrun's command line: arguments in, a CommandLine out. This file knows flags and their forms;
// config file and environment are merged later (settings.h). Horovod's forms work as they do there:
// -np, -cb, -hostfile and -prefix-timestamp with one dash, the last of a repeated flag wins, and
// the command begins at the first argument that is not an option.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "cmd/hvdrun/flag_table.h"
#include "cmd/hvdrun/settings.h"

namespace hvd::cli {

enum class Action {
  run,
  dry_run,
  print_env,
  print_slurm_hosts,
  check_build,
  version,
  help,
  rendezvous,
  agent,
  job_command
};

// How the workers' environment differs from hvdrun's own.
struct EnvironmentArguments {
  std::vector<std::string> set;       // NAME or NAME=VALUE
  std::vector<std::string> excluded;  // patterns with * and ?
  std::vector<std::string> included;  // patterns; these win over excluded ones
};

struct RendezvousArguments {
  std::string bind;                      // ADDRESS:PORT
  std::string port_range;                // for port 0; empty: any
  std::string token_file = "hvd-token";  // created if missing
  bool legacy_clients = false;
};

struct JoinAddress {
  std::string host;  // a name or an address
  std::uint16_t port = 0;
};

struct AgentArguments {
  std::vector<JoinAddress> join;  // hvdrun is at one of them
  std::string token_file = "hvd-token";
  std::string host;  // empty: this machine's own name
  int slots = 0;     // 0: not given
  std::vector<std::string> labels;
  std::chrono::milliseconds join_timeout{300'000};
};

// Of `hvdrun token`.
struct JoinTokenArguments {
  std::string id;                    // of the token to be revoked or rotated
  std::string host;                  // the only one that may join by a new one; empty: any
  std::chrono::seconds time{3'600};  // that a new one holds; 0: as long as the job
  std::uint32_t uses = 1;            // agents that may join by a new one; 0: any number
  std::string file;                  // for a new one; empty: it is printed
};

// `hvdrun jobs`, `status`, `top`, `metrics`, `page`, `dump`, `stop`, `drain`, `scale`, `token`,
// `replay`, `compare`.
struct JobCommandArguments {
  std::string command;
  // Of `drain` a host, of `scale` a number of workers, of `token` what to do: "new", "list",
  // "revoke", "rotate"; of `compare` the first file.
  std::string subject;
  bool undo = false;  // of `drain`
  // The beginning of a job's id, or empty for the only one; of `replay` a file,
  // of `compare` the second one.
  std::string argument;
  bool json = false;
  JoinTokenArguments token;
};

struct CommandLine {
  Action action = Action::run;
  Values values;
  std::optional<std::string> config_file;
  EnvironmentArguments environment;
  std::vector<std::string> command;
  RendezvousArguments rendezvous;
  AgentArguments agent;
  JobCommandArguments job_command;
  std::string help;  // what to print, when the action is help
};

// `arguments` without the program's name. An error is one of usage: hvdrun exits with 2.
Result<CommandLine> parse_command_line(const std::vector<std::string>& arguments);

FlagTable main_flag_table();

}  // namespace hvd::cli
