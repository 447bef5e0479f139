// Jobs in a Slurm allocation: whether hvdrun takes its hosts from there, which these are, and what
// its agents need to come back to it from the nodes. Asks Slurm by scontrol and sinfo. An answer
// that does not come within --start-timeout is an error.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "cmd/hvdrun/options.h"
#include "cmd/hvdrun/settings.h"
#include "discovery/slurm.h"
#include "driver/core/job_spec.h"

namespace hvd::cli {

// The allocation from which the job takes its hosts, as --hosts-from says; nothing if hosts are
// reached by SSH. With `auto` that is the allocation in which hvdrun runs, unless a flag names
// hosts. `environment` are hvdrun's own variables, NAME=VALUE.
Result<std::optional<discovery::SlurmAllocation>> slurm_hosts(
    const Values& values, const std::vector<std::string>& environment);

// The script that tells an elastic job which nodes may work now: this program again.
Result<std::string> slurm_discovery_script(const Values& values, int least);
// The output of that script.
Result<std::string> current_slurm_hosts(const Values& values,
                                        const std::vector<std::string>& environment);

// How agents are started and come back. `spec` is complete otherwise. Makes the token of the job,
// or reads it from --token-file if that is given.
Result<driver::SlurmSpec> slurm_spec(const discovery::SlurmAllocation& allocation,
                                     const driver::JobSpec& spec,
                                     const std::optional<std::string>& token_file,
                                     const std::vector<std::string>& environment);

// An error of usage: Slurm would not run this job again.
Status check_requeue(const discovery::SlurmJob& job);

// Asks Slurm to run the batch script of this job again, which ends the present run of it, unless
// somebody has asked already. False: somebody has cancelled the job, so Slurm was not asked.
Result<bool> requeue_unless_cancelled(const std::string& job_id, std::chrono::milliseconds timeout);

}  // namespace hvd::cli
