// What a worker of hvdrun can still find out where a program between hvdrun and this one has
// cleared its environment or closed its link: sudo, conda run, docker, env -i and their like. From
// /proc alone. For the thread that calls init().
#pragma once

#include <string>
#include <vector>

#include "base/knobs.h"
#include "base/status.h"

namespace hvd::worker {

// An error: hvdrun has started this process as a worker, and its environment does not say so any
// more, so that it would train alone. HVD_ALLOW_SINGLE=1 says that it is meant to.
Status check_environment_was_kept(const EnvironmentLookup& lookup);

// The command line of this program, for a person to type: in a process that Python's
// multiprocessing has started, that of the program which it belongs to.
std::vector<std::string> own_command_line();

// Who may have closed the link that the environment names, and what to do instead.
std::string closed_link_text();

}  // namespace hvd::worker
