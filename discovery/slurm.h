// A Slurm allocation as the hosts of a job: what Slurm tells a batch script in its environment, and
// what squeue and sinfo print while the job goes on. Pure parsing.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "discovery/hosts.h"

namespace hvd::discovery {

// Names of nodes as Slurm writes them: "sn[1-3,7],gpu[01-04]-ib" is sn1, sn2, sn3, sn7, gpu01-ib
// and so on, in this order. Several brackets in one name multiply. At most kMaxDiscoveredHosts.
Result<std::vector<std::string>> expand_hostlist(std::string_view text);

// Numbers, one for each node: "2(x3),1" is 2, 2, 2, 1.
Result<std::vector<int>> expand_counts(std::string_view text);

struct SlurmAllocation {
  std::string job_id;
  // The nodes, in Slurm's order. Slots are the tasks that the user asked for, else 0 if there are
  // GPUs (the agents count them), else the processors over those of a task.
  std::vector<Host> nodes;
  // Slots of a node that the allocation gets later; 0: its agent counts.
  int slots_of_newcomer = 0;
};

using VariableLookup = std::function<std::optional<std::string>(std::string_view name)>;

// Whether this process runs in an allocation.
bool is_in_slurm_allocation(const VariableLookup& lookup);
// The error names the variable that is missing or malformed.
Result<SlurmAllocation> slurm_allocation(const VariableLookup& lookup);

// The nodes that may work now. `nodes`: the hostlist that squeue prints for the job, from which
// Slurm takes nodes that have failed; `states`: of each node a line "NAME STATE" from sinfo, a name
// perhaps more than once. A node that is down does not count. One that drains, since somebody
// wants it back, counts only while fewer than `least` slots are left without it; a node whose slots
// are unknown counts as one slot.
Result<std::vector<Host>> slurm_nodes(const SlurmAllocation& allocation, std::string_view nodes,
                                      std::string_view states, int least);

// As a discovery script prints them: "sn1 slots=2" in lines, without a number where it is unknown.
std::string host_lines(const std::vector<Host>& hosts);

}  // namespace hvd::discovery
