// A set's communicator of MPI, and what MPI needs to reduce the types of hvd.
#pragma once

#include <string_view>

#include "runtime/ops/mpi.h"

namespace hvd::runtime::mpi {

// What MPI has returned, as a value; `what` was tried.
Status status_of(int code, std::string_view what);

// MPI lacks types of 8 and 16 bits, and its Min and Max do not keep NaN: for those that hvd reduces
// itself, operations of MPI are made. At the first call.
Status make_reductions(ReductionLookup reductions);

// Module::make.
Result<std::unique_ptr<LibraryCommunicator>> make_communicator(std::span<const int> ranks, int tag);

}  // namespace hvd::runtime::mpi
