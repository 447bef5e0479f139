// `hvdrun agent --join`: joins, starts the agent of this machine and carries its bytes until it has
// ended. If this process dies, the agent sees the end of its link and kills what it has started.
#pragma once

#include "cmd/hvdrun/options.h"

namespace hvd::cli {

// Returns the exit code: 0 if the job had its agent end in good order; says on stderr what else
// happened. SIGTERM, SIGINT and SIGHUP (unless it was ignored, as nohup does) are handed to the
// agent as SIGTERM, SIGUSR1 as itself.
int run_agent(const AgentArguments& arguments);

}  // namespace hvd::cli
