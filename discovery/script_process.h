// Starts a discovery script under a reaper: a child of this process that has the script as its only
// child and is a subreaper, so that whatever descends from the script, however it forks and changes
// sessions, falls to it. When the script ends, when this process orders it, or when this process is
// gone, even by SIGKILL, the reaper kills all that is left, reaps it, says how the script itself
// ended, and ends.
//
// For any thread; safe beside threads of which nobody knows.
#pragma once

#include <chrono>
#include <string>
#include <sys/types.h>

#include "base/descriptors.h"
#include "base/machine/child_process.h"
#include "base/status.h"

namespace hvd::discovery {

struct ScriptProcess {
  ChildProcess reaper;  // to be reaped by the caller, once `control` has ended
  // A Unix stream socket. To shut it down is the order to kill; the reaper writes the script's wait
  // status, an int, when nothing is left.
  UniqueFd control;
  UniqueFd output;  // what the script prints
  UniqueFd errors;  // on its standard error
};

// `command` is a file, or else a line for /bin/sh. Its standard input is empty.
Result<ScriptProcess> start_script(const std::string& command);

// For a reaper that was killed itself, and is not yet reaped by the caller: sends SIGKILL to all
// that is left in its session, and reaps those that fell to this process. A process that began a
// session of its own is not found. False if something is still there after `limit`.
bool kill_session_of(pid_t reaper, std::chrono::milliseconds limit);

}  // namespace hvd::discovery
