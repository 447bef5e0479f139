// A Copier whose GPU is in the memory of the host.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "runtime/gpu/copier.h"
#include "tests/runtime/gpu/host_gpu.h"
#include "tests/runtime/gpu/host_lane.h"

namespace hvd::test {

struct HostCopierOptions {
  HostGpuMemory* memory = &HostGpuMemory::plain();
  HostLane* legacy_stream = nullptr;  // other streams are HostLanes, too
  std::function<std::size_t()> free_bytes = [] { return std::size_t{1} << 30; };
  std::function<void()> on_copy = [] {};  // each that is begun
};

std::unique_ptr<runtime::gpu::Copier> make_host_copier(const HostCopierOptions& options);

}  // namespace hvd::test
