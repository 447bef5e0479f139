// Other programs that start several copies of a program: mpirun, srun, torchrun and their like. A
// program that one of them has started, with no hvdrun above it, would train as many worlds of one,
// unless the launcher has means by which its processes meet (worker/launch/launcher_store.h). Of
// hvdrun itself each copy would run the whole job. Pure functions of the environment.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/knobs.h"
#include "base/status.h"

namespace hvd {

// "1" lets each of several processes be a world of its own.
inline constexpr std::string_view kAllowSingleVariable = "HVD_ALLOW_SINGLE";

// Why a worker of hvdrun cannot use MPI.
inline constexpr std::string_view kNoMpiUnderHvdrun =
    "MPI serves the processes that its own launcher has started, as long as none of them is lost, "
    "and these are workers of hvdrun. Let the launcher of MPI start the program: "
    "HVD_CPU_OPERATIONS=mpi mpirun -np 4 PROGRAM";
// Why a worker of an elastic job cannot use oneCCL.
inline constexpr std::string_view kNoCclInElasticJobs =
    "a worker that waits in oneCCL for a lost one cannot be interrupted, so that an elastic job "
    "would lose all of its workers with the first. Use it in a job without --min-np, --max-np, "
    "--max-restarts and --host-discovery-script, or choose gloo";

struct OtherLaunch {
  std::string launcher;       // "Open MPI"
  std::string command;        // what people type to start it: "mpirun"
  std::string evidence;       // "OMPI_COMM_WORLD_RANK=1, OMPI_COMM_WORLD_SIZE=3"
  int rank = 0;               // of this process
  std::optional<int> size;    // of all of them; not every launcher says it
  int processes_on_host = 0;  // 0: the launcher does not say
  // Else PMIx or PMI that is there is that of a launcher around this one, which does not know these
  // ranks.
  bool speaks_pmi = true;
  std::string run = {};  // names this run among all of the launcher; empty: it does not say
};

// The number in this variable; nothing if it is not set, or holds no number of at least 0.
std::optional<int> count_of(const EnvironmentLookup& lookup, std::string_view name);

// The user says by HVD_ALLOW_SINGLE=1 that this process is meant to be alone, or a worker of hvdrun
// has started it, and has left it its environment. An error: that variable has another value.
Result<bool> may_be_alone(const EnvironmentLookup& lookup);

// The launch that has made this process one of several. Nothing if it was started as the only one,
// by hvdrun, or by none of the launchers that are known; and if HVD_ALLOW_SINGLE=1 says that it is
// meant to be alone. An error: that variable has another value, or HVD_RENDEZVOUS is set and
// HVD_RANK and HVD_SIZE are not what they must be.
Result<std::optional<OtherLaunch>> find_other_launch(const EnvironmentLookup& lookup);

// An error: a launcher has started hvdrun as several processes. HVD_ALLOW_SINGLE=1 says that each
// of them is meant to run a job of its own.
Status check_hvdrun_is_alone(const EnvironmentLookup& lookup);

// Why a process of this launch is refused, and what to type instead. `command` is its command line;
// `why_not` says why it cannot meet the others, if it should have been able to.
Status refusal(const OtherLaunch& launch, const std::vector<std::string>& command,
               std::string_view why_not);

}  // namespace hvd
