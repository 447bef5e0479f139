// From merged settings to a JobSpec. What the words alone tell to be wrong is refused here; whether
// directory and program are in place, each host says of itself.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/socket.h"
#include "base/status.h"
#include "cmd/hvdrun/options.h"
#include "cmd/hvdrun/settings.h"
#include "driver/core/job_spec.h"
#include "driver/job/plan.h"

namespace hvd::cli {

// How the output is shown.
struct OutputOptions {
  std::string directory;  // of --output-filename; empty: none
  bool tagged = true;
  bool timestamp = false;
  bool verbose = false;
  std::chrono::milliseconds stall_timeout{10'000};
};

// Where agents may join.
struct JoinListener {
  SocketAddress bind;
  std::string token_file;
};

struct JobSetup {
  driver::JobSpec spec;
  driver::Plan plan;  // of the hosts that were named; none if the job takes whoever joins
  OutputOptions output;
  std::optional<JoinListener> join;
  int workers() const {
    return plan.members.empty() ? spec.processes : static_cast<int>(plan.members.size());
  }
};

// `environment` is hvdrun's own, as NAME=VALUE entries. Everything but what --dry-run does not need
// and complete() adds.
Result<JobSetup> set_up_job(const CommandLine& line, const Values& values,
                            const std::vector<std::string>& environment);

// The agent's path, and the token that agents join with; its file is made if it is not there.
Status complete(JobSetup& setup);

// HVD_AGENT if set, else hvd-agent beside hvdrun, else ../libexec/hvd/hvd-agent from there.
Result<std::string> find_agent();

}  // namespace hvd::cli
