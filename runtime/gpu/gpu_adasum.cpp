// Adasum of tensors of a GPU, on the host: over the connections and with the arithmetic of tensors
// of the host, so that it is the same to the bit wherever a tensor lies, and all ranks, not only
// one of each host, are combined pair by pair. (To add up inside a host first, and combine only the
// hosts' sums, is faster and another result: it depends on how ranks are laid out on hosts.)
//
// The executor waits here for the inputs, as NCCL's operations do not.
#include "runtime/core/batch_arithmetic.h"
#include "runtime/gpu/gpu_operation.h"
#include "runtime/ops/adasum.h"

namespace hvd::runtime {

Status gpu_adasum(GpuWork& work) {
  const BatchArithmetic arithmetic(work.response.request(), work.active.size());
  const std::size_t element = size_of(arithmetic.type);
  std::vector<std::byte*> outputs;
  std::vector<std::size_t> lengths;
  std::size_t elements = 0;
  for (std::size_t i = 0; i < work.entries.size(); ++i) {
    const Request& request = work.entries[i].request;
    auto output = work.output_of(i, request.shape);
    HVD_RETURN_IF_ERROR(output.status());
    outputs.push_back(*output);
    lengths.push_back(static_cast<std::size_t>(request.elements()));
    elements += lengths.back();
  }
  if (elements == 0) return {};
  const std::size_t own = gpu::aligned(elements * element);
  const std::size_t sent = arithmetic.compressed() ? elements * size_of(arithmetic.wire) : 0;
  auto room = work.world.host_buffer(work.lane(), own + sent);
  HVD_RETURN_IF_ERROR(room.status());
  std::byte* at = *room;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const std::size_t bytes = lengths[i] * element;
    if (bytes == 0) continue;
    HVD_RETURN_IF_ERROR(work.gpu().transfer(work.lane(), work.entries[i].input, at, bytes));
    at += bytes;
  }
  HVD_RETURN_IF_ERROR(work.world.wait_for(work.lane()));

  std::byte* const wire = arithmetic.compressed() ? *room + own : *room;
  arithmetic.pack(*room, wire, elements);
  if (work.active.size() > 1) {
    work.world.adasum(work.group, work.active, arithmetic.wire, wire, lengths);
  }
  if (!arithmetic.compressed()) arithmetic.finish(wire, elements);
  if (arithmetic.compressed()) arithmetic.unpack(wire, *room, elements);

  at = *room;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const std::size_t bytes = lengths[i] * element;
    if (bytes == 0) continue;
    HVD_RETURN_IF_ERROR(work.gpu().transfer(work.lane(), at, outputs[i], bytes));
    at += bytes;
  }
  return {};
}

std::function<void(const Group&, const Active&, DataType, void*, const std::vector<std::size_t>&)>
adasum_over(std::shared_ptr<Mesh> mesh, std::chrono::milliseconds timeout) {
  return [mesh = std::move(mesh), timeout, scratch = std::make_shared<FusionBuffer>()](
             const Group& group, const Active& active, DataType type, void* data,
             const std::vector<std::size_t>& lengths) {
    const Peers peers(mesh->transport(), active.ranks, active.rank, group.id, timeout);
    adasum_allreduce(peers, type, data, lengths, *scratch);
  };
}

}  // namespace hvd::runtime
