#include "driver/agents/preparation.h"

#include <algorithm>
#include <utility>

#include "driver/agents/gather.h"
#include "driver/agents/local_hosts.h"

namespace hvd::driver {

// Adds slots where the plan oversubscribes a host.
static void add_planned_slots(Preparation& preparation) {
  std::map<std::string, int> workers;
  for (const auto& member : preparation.plan.members) ++workers[member.host];
  for (auto& host : preparation.hosts) host.slots = std::max(host.slots, workers[host.name]);
}

Result<Preparation> prepare(boost::asio::io_context& io, const Signals& signals,
                            const JobSpec& spec, Observer& observer) {
  Preparation preparation;
  preparation.hosts = spec.hosts;
  if (spec.join && !spec.elastic) {
    auto gathered = gather_agents(io, signals, spec, observer);
    if (!gathered) return gathered.status();
    preparation.hosts = std::move(gathered->hosts);
    preparation.joined = std::move(gathered->agents);
    preparation.join_listener = std::move(gathered->listener);
  }
  // A script names them, or they join.
  if (spec.elastic && preparation.hosts.empty()) return preparation;

  if (!spec.elastic) preparation.hosts = hosts_to_ask(preparation.hosts, spec.processes);
  if (slots_are_known(preparation.hosts)) {
    auto plan = plan_static(preparation.hosts, spec.processes, spec.oversubscribe);
    if (!plan) return plan.status();
    preparation.plan = *std::move(plan);
    if (spec.elastic) add_planned_slots(preparation);
  }

  const bool reached = (!spec.join || spec.elastic) && !spec.slurm;
  if (reached) preparation.local = find_local_hosts(io, signals, preparation.hosts);
  return preparation;
}

}  // namespace hvd::driver
