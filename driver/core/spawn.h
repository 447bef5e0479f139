// Starts child processes that are not the user's own, such as agents, proxy commands and srun, and
// tells how they have ended. Any thread.
#pragma once

#include <string>
#include <vector>

#include "base/machine/child_process.h"
#include "base/status.h"

namespace hvd::driver {

struct ChildDescriptors {
  int input = 0;
  int output = 1;
  int errors = 2;  // 2: that of this process
};

// Runs `command[0]`, which is looked for in PATH unless it has a '/'. The child has these three
// descriptors and no others, the default effect of every signal, and none blocked. It is in a
// session of its own: Ctrl-C does not reach it, and it has no terminal to ask questions on.
// `environment`: NAME=VALUE; null: that of this process. The error names the command.
Result<ChildProcess> spawn_in_session(const std::vector<std::string>& command,
                                      const ChildDescriptors& descriptors,
                                      const std::vector<std::string>* environment = nullptr);

// What ChildProcess::wait() has returned, in words: "exited with code 3", "was killed by SIGKILL
// (signal 9)", or "ended" if nobody knows how.
std::string end_text(const Result<int>& wait_status);

}  // namespace hvd::driver
