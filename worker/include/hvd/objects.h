// Collectives on data that is not a tensor: strings of bytes, whose size may differ from rank to
// rank, and whole lists of parameters.
//
//     const auto settings = hvd::broadcast_object(rank == 0 ? read(file) : "", {.root = 0});
//     const auto names = hvd::allgather_object(hostname);            // names[r] is rank r's
//     hvd::broadcast_parameters(model, {.root = 0});                 // before the first step
//
// All block, may be called from any thread, and throw what hvd/error.h says. Calls without a name
// are numbered in the order of this rank's calls in the process set, as in hvd/collectives.h.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <hvd/collectives.h>
#include <hvd/export.h>
#include <hvd/process_set.h>
#include <hvd/tensor.h>

namespace hvd {

// The root's bytes, on every rank. The bytes of the other ranks are not looked at. Throws
// OutOfMemoryError on all ranks if one of them has no memory for the object.
HVD_API std::string broadcast_object(std::string_view bytes, const BroadcastOptions& options = {});
HVD_API std::string broadcast_object(std::span<const std::byte> bytes,
                                     const BroadcastOptions& options = {});

// The bytes that each rank of the set gave, in the order of ranks. Ranks that have joined give
// nothing and are left out.
HVD_API std::vector<std::string> allgather_object(std::string_view bytes,
                                                  const AllgatherOptions& options = {});
HVD_API std::vector<std::string> allgather_object(std::span<const std::byte> bytes,
                                                  const AllgatherOptions& options = {});

struct NamedTensor {
  std::string name;  // the same on all ranks, and only once in a list
  TensorView tensor;
};

struct BroadcastParametersOptions {
  int root = 0;  // the rank, of the world, whose elements all get
  ProcessSet process_set = {};
};

// All tensors of the list, which may stand in another order on other ranks, in flight at the same
// time. Returns when all are done, also before it throws the first error. In errors a tensor w is
// called broadcast_parameters.w.
HVD_API void broadcast_parameters(std::span<const NamedTensor> tensors,
                                  const BroadcastParametersOptions& options = {});

}  // namespace hvd
