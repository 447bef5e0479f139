// The commands about jobs. `hvdrun jobs`, `status`, `top`, `metrics`, `page`, `dump`, `stop`,
// `drain`, `scale` and `token` ask running jobs of this user, of all users for root, at their
// sockets (driver/status/control_server.h); nothing is asked over the network. `hvdrun replay`
// reads a job's journal, `hvdrun compare` the ledgers of two.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "cmd/hvdrun/flag_table.h"
#include "cmd/hvdrun/options.h"

namespace hvd::cli {

struct JobCommandName {
  std::string name;
  std::string arguments;  // "[JOB] [options]"
  std::string help;       // what it does, in one line
};
const std::vector<JobCommandName>& job_command_names();
bool is_job_command(const std::string& name);

// `arguments` without the names of program and command.
Result<CommandLine> parse_job_command(const std::string& name,
                                      const std::vector<std::string>& arguments);
FlagTable job_command_flag_table(const std::string& name);

struct JobCommandResult {
  std::string text;                   // for standard output
  std::vector<std::string> warnings;  // of jobs that are not in it, and why
  int exit_code = 0;
};

// `top` returns when it ends. An error says which job could not be asked, and why, or which file of
// `compare` is none.
Result<JobCommandResult> run_job_command(const JobCommandArguments& arguments);

}  // namespace hvd::cli
