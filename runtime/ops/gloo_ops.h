// Allreduce, broadcast and barrier by Gloo's algorithms, on a mesh of Gloo's stock transport. What
// Gloo throws becomes a Status here. One object of each per world; each shares the mesh, and
// aborting one aborts the mesh.
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

// In the order of their priority.
std::vector<std::unique_ptr<Operation>> make_gloo_operations(std::shared_ptr<GlooMesh> mesh,
                                                             const GlooOperationOptions& options);

}  // namespace hvd::runtime
