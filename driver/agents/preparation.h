// The preparation of a job: its hosts, which of them are this machine, which agents have joined
// already, and the plan of ranks.
#pragma once

#include <map>
#include <memory>
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
  std::map<std::string, AgentConnection> joined;  // agents that have joined by themselves, by host
  std::shared_ptr<const void> join_listener;      // null: there is none
  // At least the hosts of the plan. For an elastic job all hosts that it may ever use; empty if a
  // script names them.
  std::vector<HostSlots> hosts;
  // Empty as long as not all slots are known.
  Plan plan;
};

// Runs `io` meanwhile, and ends early when a signal is waiting; its result is meaningless then.
Result<Preparation> prepare(boost::asio::io_context& io, const Signals& signals,
                            const JobSpec& spec, Observer& observer);

}  // namespace hvd::driver
