// `hvdrun agent --join`: joins the job, starts the agent of this machine and relays its bytes until
// it has ended. If this process dies, the agent sees the end of its link and kills its workers.
#pragma once

#include "cmd/hvdrun/options.h"

namespace hvd::cli {

// Returns the exit code: the job's, or 0 if the job went on without this host; what is not 0 is
// explained on stderr.
// SIGTERM, SIGINT and SIGHUP (unless nohup has made it ignored) are forwarded to the agent as
// SIGTERM, SIGUSR1 as itself.
int run_agent(const AgentArguments& arguments);

}  // namespace hvd::cli
