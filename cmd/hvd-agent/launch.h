// Starts one worker: the steps of the new process between fork and exec. Called by the reaper
// (reaper.h), in its own process.
#pragma once

#include <string>
#include <sys/resource.h>
#include <sys/types.h>
#include <vector>

#include "base/descriptors.h"
#include "base/status.h"
#include "cmd/hvd-agent/program.h"

namespace hvd::agent {

struct WorkerStart {
  std::vector<std::string> command;      // program and arguments
  std::vector<std::string> environment;  // all of it, but for the number of the descriptor
  std::string working_directory;         // empty: the agent's own
  std::vector<int> processors;           // on which it runs; empty: on any
  UniqueFd socket;        // the worker's end of its descriptor; none: it is no worker
  UniqueFd life_lock;     // which the worker's runtime is to hold; none: it does not
  UniqueFd state_memory;  // in which it keeps the job's state; none: in its own
  // A pidfd of the reaper of the worker whose place this one takes, if something is left of it.
  UniqueFd predecessor;
  UniqueFd standard_output;
  UniqueFd standard_error;
  rlimit open_files{};  // the limit that the worker gets: not the agent's own, which was raised
};

// Errors that need no attempt: a missing program, a NUL byte, an invalid variable.
Status check(const WorkerStart& start);

struct StartedProcess {
  pid_t pid = -1;
  // End of file when the program runs; otherwise an encoded LaunchError.
  UniqueFd error_pipe;
};

// Forks. The new process has its own session and process group, /dev/null for stdin, the two pipes,
// its descriptor and nothing else open, every signal as by default, and dies with its parent.
Result<StartedProcess> start_worker(const WorkerStart& start);

// For a fork of the agent: closes all descriptors from 3 on but these.
void close_all_but(std::vector<int> kept);

}  // namespace hvd::agent
