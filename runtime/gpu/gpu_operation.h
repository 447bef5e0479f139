// The parts that the operations on a GPU have in common; for gpu_*_ops.cpp.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "runtime/gpu/gpu_ops.h"
#include "runtime/gpu/plan.h"
#include "runtime/ops/layout.h"

namespace hvd::runtime {

// One batch on its way into a lane.
struct GpuWork {
  const Response& response;
  const Group& group;
  const Active& active;  // of which this rank is one
  const Entries& entries;
  std::span<Outcome> outcomes;
  const GpuOperationOptions& options;
  gpu::GpuWorld& world;
  gpu::Link& link;
  std::vector<void*> temporary;  // memory of the lane, until the batch has been put into it

  int lane() const { return link.lane; }
  gpu::Gpu& gpu() const { return world.gpu(); }
  // As prepare_output(); if there is no memory, throwaway memory in its place, since the others
  // count on this rank.
  Result<std::byte*> output_of(std::size_t entry, const std::vector<std::int64_t>& shape);
  Status copy(const gpu::ElementCast& cast, std::span<const gpu::CopyExtent> extents) const;
  Status copy_bytes(const void* from, void* to, std::size_t bytes) const;
};

// Put everything into the lane. An error that concerns one tensor goes into its outcome, and no
// further; one that is returned is the world's.
Status gpu_allreduce(GpuWork& work);
Status gpu_adasum(GpuWork& work);
Status gpu_reducescatter(GpuWork& work);
Status gpu_allgather(GpuWork& work);
Status gpu_broadcast(GpuWork& work);
Status gpu_alltoall(GpuWork& work);
Status gpu_barrier(GpuWork& work);

}  // namespace hvd::runtime
