// Texts that hvdrun prints instead of running a job: --version, --check-build, --dry-run,
// --print-env. Pure, except for support().
#pragma once

#include <string>
#include <vector>

#include "driver/core/job_spec.h"
#include "driver/job/plan.h"

namespace hvd::cli {

std::string version_text();
// A module of the library that is loaded at run time.
struct ModuleSupport {
  bool built = false;  // by the build that hvdrun is of
  std::string path;    // empty: not found
};
struct Support {
  ModuleSupport nccl;
  ModuleSupport open_mpi;
  ModuleSupport mpich;
  ModuleSupport oneccl;
  int gpus = 0;  // of this machine
};
// Reads /dev and the folders beside hvdrun.
Support support();
// The frameworks, controllers and operations of this build, in Horovod's layout, and which of them
// can run here.
std::string check_build_text(const Support& support);
// A table of rank, host, slot and the local and cross ranks, then the command as a shell would read
// it.
std::string dry_run_text(const driver::JobSpec& spec, const driver::Plan& plan);
// Sorted NAME=VALUE lines that a shell can read; what each host adds of its own is a comment.
std::string environment_text(const std::vector<std::string>& environment,
                             const std::vector<std::string>& host_variables);

}  // namespace hvd::cli
