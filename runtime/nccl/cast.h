// The one kernel of hvd: many extents of memory copied at once, elements changed on their way.
#pragma once

#include <cuda_runtime_api.h>
#include <span>

#include "runtime/gpu/gpu.h"

namespace hvd::runtime::gpu {

// Puts it into the stream; nothing waits. `processors`: of the device. Elements that only move are
// best called bytes.
cudaError_t launch_cast(cudaStream_t stream, int processors, const ElementCast& cast,
                        std::span<const CopyExtent> extents);

}  // namespace hvd::runtime::gpu
