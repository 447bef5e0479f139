// From merged settings to a JobSpec. Errors of the settings alone are found here; each host checks
// the directory and the program itself.
#pragma once

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/socket.h"
#include "base/status.h"
#include "cmd/hvdrun/options.h"
#include "cmd/hvdrun/settings.h"
#include "discovery/slurm.h"
#include "driver/core/job_spec.h"
#include "driver/job/plan.h"

namespace hvd::cli {

// Options of the output.
struct OutputOptions {
  std::string directory;  // of --output-filename; empty: no files
  bool tagged = true;
  bool timestamp = false;
  bool verbose = false;
  std::set<int> local_ranks;  // of the workers that are shown; empty: all
  std::chrono::milliseconds stall_timeout{10'000};
};

// Where agents may join.
struct JoinListener {
  SocketAddress bind;
  std::string token_file;
  std::vector<std::string> required_labels;
};

// Where a Prometheus may ask for metrics.
struct MetricsListener {
  SocketAddress bind;
  std::string token_file;
};

struct JobSetup {
  driver::JobSpec spec;
  driver::Plan plan;  // on the named hosts; empty if the hosts join by themselves
  OutputOptions output;
  std::optional<JoinListener> join;
  std::optional<MetricsListener> metrics;
  std::optional<discovery::SlurmAllocation> slurm;  // whose nodes are the hosts
  std::optional<std::string> token_file;            // as it was asked for
  std::string state_file;                           // of --state-file, absolute; empty: none
  bool requeue = false;  // asks Slurm to run its job again when this one was suspended
  int workers() const {
    return plan.members.empty() ? spec.processes : static_cast<int>(plan.members.size());
  }
};

// `environment` is hvdrun's own, as NAME=VALUE entries. complete() adds the parts that --dry-run
// does not need.
Result<JobSetup> set_up_job(const CommandLine& line, const Values& values,
                            const std::vector<std::string>& environment);

// Adds the agent's path, and the tokens of joining agents and of metrics, whose files are created
// if they are missing.
Status complete(JobSetup& setup, const std::vector<std::string>& environment);

// The path of HVD_AGENT if set, else of hvd-agent beside hvdrun, else of ../libexec/hvd/hvd-agent.
Result<std::string> find_agent();

}  // namespace hvd::cli
