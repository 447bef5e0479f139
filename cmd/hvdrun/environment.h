// The environment of the workers: hvdrun's own except for a few variables, the variables of --env,
// and the settings. Variables that belong to one host (home, session, devices) and secrets are not
// sent to other hosts: each worker gets them from its own host. Pure; the driver adds the variables
// that differ between slots.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "cmd/hvdrun/options.h"
#include "cmd/hvdrun/settings.h"

namespace hvd::cli {

struct WorkerEnvironment {
  std::vector<std::string> entries;  // NAME=VALUE; sorted, each variable once
  // Names of variables that a worker gets from its host, if they are set there; disjoint from
  // `entries`.
  std::vector<std::string> host_variables;
  // The variables of `host_variables` that are set here and look like secrets.
  std::vector<std::string> secrets;
  // Those that are set here and that nobody has named, with --env-policy named.
  std::vector<std::string> unnamed;
};

// `own` are NAME=VALUE entries. Each knob in `values` is given by its HVD_* and by its HOROVOD_*
// name, so that programs built for either see the same.
Result<WorkerEnvironment> worker_environment(const std::vector<std::string>& own,
                                             const EnvironmentArguments& arguments,
                                             const Values& values);

// An error of usage: one of the words of --env has no name, or names a variable that hvdrun sets
// itself for each worker.
Status check_env(const EnvironmentArguments& arguments);

// A warning for each HVD_* variable of `own` whose name is that of a setting but for a slip of the
// fingers.
std::vector<std::string> warnings_of_misspelt_settings(const std::vector<std::string>& own);

// This process's own environment as NAME=VALUE entries.
std::vector<std::string> own_environment();

}  // namespace hvd::cli
