// Which variables the workers get: hvdrun's whole environment but for a few, what the person adds
// with --env, and the knobs that were set. Pure; the driver adds what differs from slot to slot.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "cmd/hvdrun/options.h"
#include "cmd/hvdrun/settings.h"

namespace hvd::cli {

// `own` and the result are NAME=VALUE entries; the result is sorted and names each variable once.
// Each knob in `values` is given by its HVD_* and by its HOROVOD_* name, so that programs built for
// either see the same.
Result<std::vector<std::string>> worker_environment(const std::vector<std::string>& own,
                                                    const EnvironmentWords& words,
                                                    const Values& values);

// This process's own environment as NAME=VALUE entries.
std::vector<std::string> own_environment();

}  // namespace hvd::cli
