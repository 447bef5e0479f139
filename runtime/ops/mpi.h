// MPI as the operations on tensors of the host use it, and the module in which all that knows MPI
// is: found, loaded and asked only where MPI was chosen (runtime/core/loadable.h). There is one
// module for each MPI that hvd was built with, since Open MPI and MPICH do not share an ABI.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <hvd/types.h>

#include "base/knobs.h"
#include "base/status.h"
#include "runtime/core/arithmetic.h"
#include "runtime/core/loadable.h"
#include "runtime/ops/library.h"

namespace hvd::runtime::mpi {

// This process among those that the launcher of MPI has started.
struct Self {
  int rank = 0;
  int size = 0;
  bool has_threads = false;  // several threads may call MPI at the same time
};

inline constexpr std::string_view kModuleVariable = "HVD_MPI_MODULE";
inline constexpr const char* kModuleEntry = "hvd_mpi_module";
// Changes with everything that a module and its loader must agree about.
inline constexpr std::uint32_t kModuleInterface = 1;

using ReductionLookup = ReduceFunction (*)(DataType type, ReduceOp op);

struct Module : ModuleHead {
  std::string (*library)() = nullptr;  // "Open MPI v4.1.4"
  // Begins MPI, unless the program has. `wants_threads`: it must be ready for several threads.
  // `reductions`: what MPI has no operation for is computed by these.
  Result<Self> (*begin)(bool wants_threads, ReductionLookup reductions) = nullptr;
  // Ends MPI if begin() has begun it. All processes of the launcher must call it.
  void (*end)() = nullptr;
  // False once the program has ended MPI.
  bool (*is_there)() = nullptr;
  // A communicator of these ranks, in this order; they alone call it, with the same tag. Blocks.
  Result<std::unique_ptr<LibraryCommunicator>> (*make)(std::span<const int> ranks,
                                                       int tag) = nullptr;
};

// "openmpi" or "mpich": the MPI that the program has loaded, else the one whose launcher's
// variables are there.
std::string_view kind_of_mpi(const EnvironmentLookup& lookup);
// Whether a module lies where it would be looked for; loads nothing.
bool is_built();
// The module; loads it at the first call that succeeds. Safe from any thread.
Result<const Module*> module();
// The module, if it was loaded; else null.
const Module* loaded_module();

}  // namespace hvd::runtime::mpi
