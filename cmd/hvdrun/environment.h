// Which variables the workers get: hvdrun's whole environment but for a few, what the person adds
// with --env, and the knobs that were set. What is each host's own business (its home, its
// sessions, its devices) is not carried from here to there. Pure; the driver adds what differs from
// slot to slot.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "cmd/hvdrun/options.h"
#include "cmd/hvdrun/settings.h"

namespace hvd::cli {

struct WorkerEnvironment {
  std::vector<std::string> entries;  // NAME=VALUE; sorted, each variable once
  // Names of variables that a worker gets from its host, where that has them. None is in `entries`.
  std::vector<std::string> host_variables;
};

// `own` are NAME=VALUE entries. Each knob in `values` is given by its HVD_* and by its HOROVOD_*
// name, so that programs built for either see the same.
Result<WorkerEnvironment> worker_environment(const std::vector<std::string>& own,
                                             const EnvironmentWords& words, const Values& values);

// This process's own environment as NAME=VALUE entries.
std::vector<std::string> own_environment();

}  // namespace hvd::cli
