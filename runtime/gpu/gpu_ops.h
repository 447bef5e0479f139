// Every collective, on tensors of a GPU, over NCCL. The tensors of a batch are packed by one kernel
// and reduced as one; large ones stay where they lie. Nothing here waits for the device: work is
// put into a lane of it, behind the events that say that the inputs are there, and the batch is
// over when the lane has come to its end (gpu/gpu_world.h), or, if all its tensors have streams of
// the user's, when those have been told to wait for it.
//
// The data that the members must exchange first, their capabilities and how they split rows,
// travels over the mesh, as everything on the executor's thread in the same order on all.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/gpu/gpu_world.h"
#include "runtime/ops/operation.h"
#include "runtime/transport/mesh.h"

namespace hvd::runtime {

struct GpuOperationOptions {
  // Tensors of a batch that are larger are not packed. Packing costs four passes over memory, some
  // hundredths of what it takes to send them; to start another collective costs microseconds.
  std::size_t packed_bytes = std::size_t{4} << 20;
};

// For GpuWorldOptions::tell.
std::vector<std::string> tell_over(Mesh& mesh, std::chrono::milliseconds timeout,
                                   const Group& group, const Active& active, std::string own);

// For GpuWorldOptions::adasum; for one thread at a time.
std::function<void(const Group&, const Active&, DataType, void*, const std::vector<std::size_t>&)>
adasum_over(std::shared_ptr<Mesh> mesh, std::chrono::milliseconds timeout);

std::vector<std::unique_ptr<Operation>> make_gpu_operations(
    const std::shared_ptr<gpu::GpuWorld>& world, const GpuOperationOptions& options);

}  // namespace hvd::runtime
