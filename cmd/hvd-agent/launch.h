// Starting one worker: what a new process does between fork and exec. Called by the reaper
// (reaper.h), in its own process.
#pragma once

#include <string>
#include <sys/resource.h>
#include <sys/types.h>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "cmd/hvd-agent/program.h"

namespace hvd::agent {

struct WorkerStart {
  std::vector<std::string> command;      // program and arguments
  std::vector<std::string> environment;  // all of it, but for the number of the descriptor
  std::string working_directory;         // empty: the agent's own
  UniqueFd socket;                       // the worker's end of its descriptor
  UniqueFd standard_output;
  UniqueFd standard_error;
  rlimit open_files{};  // the limit that the worker gets: not the agent's own, which was raised
};

// What can be said without starting anything: no program, a NUL byte, an impossible variable.
Status check(const WorkerStart& start);

struct StartedProcess {
  pid_t pid = -1;
  // Closes without a word when the program runs; else an encoded LaunchError comes out of it.
  UniqueFd error_pipe;
};

// Forks. The new process has its own session and process group, /dev/null for stdin, the two pipes,
// its descriptor and nothing else open, every signal as by default, and dies with its parent.
Result<StartedProcess> start_worker(const WorkerStart& start);

// For a fork of the agent: from 3 on nothing but these stays open.
void close_all_but(std::vector<int> kept);

}  // namespace hvd::agent
