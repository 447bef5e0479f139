// Every collective, over a mesh of Gloo's stock transport: its connections and messages; the
// algorithms are ours (algorithms.h, ring.h, adasum.h). What Gloo throws becomes a Status here. One
// object of each kind per world; each shares the mesh, and aborting one aborts the mesh.
//
// A process set uses the connections of the world with slots of its own (peers.h): there is nothing
// to make for it and nothing to keep.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "runtime/ops/gloo_mesh.h"
#include "runtime/ops/operation.h"

namespace hvd::runtime {

struct GlooOperationOptions {
  std::chrono::milliseconds timeout;  // silence of a peer in the midst of its data
};

// In the order of their priority. For sets of at least two ranks; local_ops.h serves the others.
std::vector<std::unique_ptr<Operation>> make_gloo_operations(const std::shared_ptr<GlooMesh>& mesh,
                                                             const GlooOperationOptions& options);

}  // namespace hvd::runtime
