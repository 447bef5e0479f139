// Other programs that start several copies of a program: mpirun, srun, torchrun and their like. A
// program that one of them has started, with no hvdrun above it, would train as many worlds of one.
// Pure functions of the environment.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/knobs.h"
#include "base/status.h"

namespace hvd::worker {

// "1" lets each of several processes be a world of its own.
inline constexpr std::string_view kAllowSingleVariable = "HVD_ALLOW_SINGLE";

struct OtherLaunch {
  std::string launcher;       // "Open MPI"
  std::string command;        // what people type to start it: "mpirun"
  std::string evidence;       // "OMPI_COMM_WORLD_RANK=1, OMPI_COMM_WORLD_SIZE=3"
  int rank = 0;               // of this process
  std::optional<int> size;    // of all of them; not every launcher says it
  int processes_on_host = 0;  // 0: the launcher does not say
};

// Nothing if this process was started as the only one, or by none of the launchers that are known.
std::optional<OtherLaunch> find_other_launch(const EnvironmentLookup& lookup);

// failed_precondition if this process is one of several that another launcher has started, unless
// HVD_ALLOW_SINGLE=1 says that this is meant; the message says what to type instead. `command` is
// the command line of this process. To be asked when hvdrun has not started it.
Status check_that_it_may_be_alone(const EnvironmentLookup& lookup,
                                  const std::vector<std::string>& command);

}  // namespace hvd::worker
