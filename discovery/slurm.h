// A Slurm allocation as the hosts of a job: what Slurm tells a batch script in its environment, and
// what scontrol and sinfo print while the job goes on. Pure parsing.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "discovery/hosts.h"
#include "discovery/slurm_job.h"

namespace hvd::discovery {

struct SlurmAllocation {
  SlurmJob job;
  // The nodes, in Slurm's order. Slots are the tasks that the user asked for, else the node's GPUs
  // if the job uses any (0: the agent counts them), else the processors over those of a task.
  std::vector<Host> nodes;
  // Slots of a node that the allocation gets later; 0: its agent counts.
  int slots_of_newcomer = 0;
};

using VariableLookup = std::function<std::optional<std::string>(std::string_view name)>;

// Whether this process runs in an allocation.
bool is_in_slurm_allocation(const VariableLookup& lookup);
// The id of its job. The error names the variable that is missing.
Result<std::string> slurm_job_id(const VariableLookup& lookup);
// `job`: the one of that id. The error names the variable that is malformed.
Result<SlurmAllocation> slurm_allocation(const VariableLookup& lookup, SlurmJob job);

// The nodes that may work now: those of `allocation.job`, from which Slurm takes nodes that have
// failed. `states`: of each node a line "NAME STATE" from sinfo, a name perhaps more than once. A
// node that is down does not count. One that drains, since somebody wants it back, counts only
// while fewer than `least` slots are left without it; a node whose slots are unknown counts as one
// slot.
Result<std::vector<Host>> slurm_nodes(const SlurmAllocation& allocation, std::string_view states,
                                      int least);

// As a discovery script prints them: "sn1 slots=2" in lines, without a number where it is unknown.
std::string host_lines(const std::vector<Host>& hosts);

}  // namespace hvd::discovery
