// What is found out before a job can begin: which hosts there are, which of them are this machine,
// whose agents are there already, and who will work where.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "base/status.h"
#include "driver/core/agent_handle.h"
#include "driver/core/job_spec.h"
#include "driver/core/observer.h"
#include "driver/core/signals.h"
#include "driver/job/plan.h"

namespace hvd::driver {

struct Preparation {
  std::set<std::string> local;                    // hosts that are this machine
  std::map<std::string, AgentConnection> joined;  // agents that came by themselves, by host
  // At least those that the plan names. Of an elastic job those that may ever be used; none if a
  // script says who that is.
  std::vector<HostSlots> hosts;
  // None as long as not all slots are known.
  Plan plan;
};

// Runs `io` meanwhile, and ends early when a signal is waiting; what it returns then is of no use.
Result<Preparation> prepare(boost::asio::io_context& io, const Signals& signals,
                            const JobSpec& spec, Observer& observer);

}  // namespace hvd::driver
