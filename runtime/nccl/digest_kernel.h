// The kernel that reads what lies in memory of a device, or what the device reaches (gpu/digest.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>

namespace hvd::runtime::gpu {

// Puts it into the stream: `sum`, in memory of the device, is what digest_on_host() says of these
// bytes, which begin at a multiple of 8.
cudaError_t launch_digest(cudaStream_t stream, int processors, const void* memory,
                          std::size_t bytes, std::uint64_t* sum);

}  // namespace hvd::runtime::gpu
