// A LauncherStore over PMIx (pmix.github.io), which Open MPI's mpirun, PRRTE, Slurm (srun
// --mpi=pmix) and Flux speak with the processes that they start. Its library is loaded at run time,
// and only in a process that such a launcher has started.
#pragma once

#include <memory>

#include "base/knobs.h"
#include "base/status.h"
#include "worker/launch/launcher_store.h"

namespace hvd::worker {

// The environment says that a launcher waits for this process at the other end of PMIx.
bool has_pmix(const EnvironmentLookup& lookup);

// Connects to the launcher; the destructor takes leave of it. A process has one store as long as it
// lives: a launcher counts who leaves as one that has come to the gather() of the others.
// HVD_PMIX_LIBRARY names the library to load. failed_precondition: there is no such library, or
// libhvd was built without its header.
Result<std::unique_ptr<LauncherStore>> open_pmix_store(const EnvironmentLookup& lookup);

}  // namespace hvd::worker
