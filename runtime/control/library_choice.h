// The library of collectives that a world's settings choose for tensors of the host.
#pragma once

#include <memory>

#include "base/status.h"
#include "runtime/core/world_spec.h"
#include "runtime/ops/library.h"
#include "runtime/transport/mesh.h"

namespace hvd::runtime {

// MPI or oneCCL, with its module loaded; the settings choose one. `mesh` connects the members.
Result<std::unique_ptr<Library>> chosen_library(const WorldSpec& spec,
                                                const std::shared_ptr<Mesh>& mesh);

}  // namespace hvd::runtime
