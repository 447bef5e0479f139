// The first step of a job whose agents join by themselves (`hvdrun agent --join`): waits for the
// named hosts, or, if none are named, until there are as many slots as processes.
#pragma once

#include <map>
#include <memory>
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
  // In the user's order, or in the order of joining. All slots are known, since each agent reports
  // its own.
  std::vector<HostSlots> hosts;
  std::map<std::string, AgentConnection> agents;  // by host; nothing was sent to them yet
  // While it exists the address still answers: health probes, and agents that are too late. Must
  // not outlive the arguments of gather_agents().
  std::shared_ptr<const void> listener;
};

// Runs `io` meanwhile. No agent can join after it has returned. An error names the missing hosts;
// its code is aborted if a signal is waiting.
Result<Gathered> gather_agents(boost::asio::io_context& io, const Signals& signals,
                               const JobSpec& spec, Observer& observer);

}  // namespace hvd::driver
