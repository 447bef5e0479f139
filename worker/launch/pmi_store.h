// A LauncherStore over version 1 of PMI's wire protocol, which MPICH's mpiexec (Hydra) and its
// descendants speak with the processes that they start: lines of text through the descriptor PMI_FD
// ("PMI: A Scalable Parallel Process-Management Interface for Extreme-Scale Systems", Balaji et
// al., and MPICH's src/pmi).
#pragma once

#include <memory>

#include "base/knobs.h"
#include "base/status.h"
#include "worker/launch/launcher_store.h"

namespace hvd::worker {

// The environment says that a launcher waits for this process at the other end of PMI_FD.
bool has_pmi(const EnvironmentLookup& lookup);

// Connects to the launcher, which a process may do once: the store has to live as long as
// the process may need it. The destructor takes leave, without which the launcher takes the end of
// the process for a crash. failed_precondition: the launcher does not speak this protocol.
Result<std::unique_ptr<LauncherStore>> open_pmi_store(const EnvironmentLookup& lookup);

}  // namespace hvd::worker
