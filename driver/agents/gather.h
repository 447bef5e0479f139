// The first step of a job whose agents come by themselves (`hvdrun agent --join`): waits until
// those are there that the job needs. The named hosts, if any are named, else as many slots as
// there are to be processes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "base/status.h"
#include "driver/core/agent_handle.h"
#include "driver/core/job_spec.h"
#include "driver/core/observer.h"
#include "driver/core/signals.h"

namespace hvd::driver {

struct Gathered {
  // In the person's order, or as they came; all slots are known, since each agent names its own.
  std::vector<HostSlots> hosts;
  std::map<std::string, AgentConnection> agents;  // by host; nothing was said to them yet
};

// Runs `io` meanwhile; lets nobody in any more when it returns. An error names who is missing, and
// has the code aborted if a signal is waiting.
Result<Gathered> gather_agents(boost::asio::io_context& io, const Signals& signals,
                               const JobSpec& spec, Observer& observer);

}  // namespace hvd::driver
