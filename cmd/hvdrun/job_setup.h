// From merged settings to a JobSpec: hosts are read, paths looked at, everything that can be known
// to fail before the first process starts does so here.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/status.h"
#include "cmd/hvdrun/options.h"
#include "cmd/hvdrun/settings.h"
#include "driver/job_spec.h"
#include "driver/plan.h"

namespace hvd::cli {

// How the output is shown.
struct OutputOptions {
  std::string directory;  // of --output-filename; empty: none
  bool tagged = true;
  bool timestamp = false;
  bool verbose = false;
  std::chrono::milliseconds stall_timeout{10'000};
};

struct JobSetup {
  driver::JobSpec spec;
  driver::Plan plan;
  OutputOptions output;
};

// `environment` is hvdrun's own, as NAME=VALUE entries. Everything but the agent and the program,
// which --dry-run does not need.
Result<JobSetup> set_up_job(const CommandLine& line, const Values& values,
                            const std::vector<std::string>& environment);

// Whether the command can be started in the spec's directory with the spec's PATH. Code::not_found
// or Code::permission_denied as a shell would say it with 127 or 126.
Status check_program(const driver::JobSpec& spec);

// HVD_AGENT if set, else hvd-agent beside hvdrun, else ../libexec/hvd/hvd-agent from there.
Result<std::string> find_agent();

}  // namespace hvd::cli
