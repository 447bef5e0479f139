// How the processes that one launcher has started, mpirun for instance, tell each other something
// before they are connected: through the launcher. Each kind of launcher has a store of its own.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/knobs.h"
#include "base/other_launcher.h"
#include "base/security/crypto.h"
#include "base/status.h"
#include "base/text.h"

namespace hvd::worker {

// For one thread.
class LauncherStore {
 public:
  virtual ~LauncherStore() = default;
  LauncherStore() = default;
  LauncherStore(const LauncherStore&) = delete;
  LauncherStore& operator=(const LauncherStore&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // A secret of all processes, if they have one already.
  virtual std::optional<Token> token() const { return std::nullopt; }
  // To be called by all processes, equally often. Publishes `value`, waits for all, and returns the
  // values of all, by rank. deadline_exceeded: some process did not call.
  virtual Result<std::vector<std::string>> gather(std::string_view value, TimePoint deadline) = 0;
};

// The error of a gather() that not all of so many processes have called.
inline Status not_all_came(int size) {
  return {Code::deadline_exceeded,
          cat("some of the ", size,
              " processes that the launcher has started did not call init() in time "
              "(--init-timeout)")};
}

// ---- pmi_store.cpp ----
//
// A store over version 1 of PMI's wire protocol, which MPICH's mpiexec (Hydra) and its descendants
// speak with the processes that they start: lines of text through the descriptor PMI_FD ("PMI: A
// Scalable Parallel Process-Management Interface for Extreme-Scale Systems", Balaji et al., and
// MPICH's src/pmi).

// The environment says that a launcher waits for this process at the other end of PMI_FD.
bool has_pmi(const EnvironmentLookup& lookup);

// Connects to the launcher, which a process may do once: the store has to live as long as
// the process may need it. The destructor takes leave, without which the launcher takes the end of
// the process for a crash. failed_precondition: the launcher does not speak this protocol.
Result<std::unique_ptr<LauncherStore>> open_pmi_store(const EnvironmentLookup& lookup);

// ---- pmix_store.cpp ----
//
// A store over PMIx (pmix.github.io), which Open MPI's mpirun, PRRTE, Slurm (srun --mpi=pmix) and
// Flux speak with the processes that they start. Its library is loaded at run time,
// and only in a process that such a launcher has started.

// The environment says that a launcher waits for this process at the other end of PMIx.
bool has_pmix(const EnvironmentLookup& lookup);

// Connects to the launcher; the destructor takes leave of it. A process has one store as long as it
// lives: a launcher counts who leaves as one that has come to the gather() of the others.
// HVD_PMIX_LIBRARY names the library to load. failed_precondition: there is no such library, or
// libhvd was built without its header.
Result<std::unique_ptr<LauncherStore>> open_pmix_store(const EnvironmentLookup& lookup);

// ---- rendezvous_store.cpp ----
//
// A store over a rendezvous service that somebody has started (`hvdrun rendezvous`): for
// launchers that give their processes a rank and a size, and no means to meet.

// Where the service is, "10.0.0.1:4000", and the file with its token.
inline constexpr std::string_view kRendezvousVariable = "HVD_RENDEZVOUS";
inline constexpr std::string_view kTokenFileVariable = "HVD_TOKEN_FILE";  // "./hvd-token"
// Names this run, if the launcher does not: what an earlier one has said may still be there.
inline constexpr std::string_view kRunIdVariable = "HVD_RUN_ID";

// The environment names such a service.
bool has_rendezvous(const EnvironmentLookup& lookup);

// An error names the variable, or the file, that is wrong.
Result<std::unique_ptr<LauncherStore>> open_rendezvous_store(const EnvironmentLookup& lookup,
                                                             const OtherLaunch& launch);

}  // namespace hvd::worker
