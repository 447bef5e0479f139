// allreduce and reducescatter.
#include <algorithm>

#include "runtime/ops/gpu_operation.h"

namespace hvd::runtime {
namespace {

using gpu::Communicator;
using gpu::ReductionPlan;
using gpu::Stretch;

struct Tensor {
  const void* input;
  std::byte* output;
  std::size_t elements;
};

// All ranks refuse the same.
bool refused(const Result<ReductionPlan>& plan, std::span<Outcome> outcomes) {
  if (plan.ok()) return false;
  for (auto& outcome : outcomes) outcome.failure = plan.status();
  return true;
}

// Tensors that are reduced where they lie: what is to be done before and after.
Status pass_in_place(const GpuWork& work, const gpu::Passage& passage,
                     std::vector<Stretch> stretches) {
  return passage.changes_nothing() ? Status() : work.copy(passage, stretches);
}

}  // namespace

Status gpu_allreduce(GpuWork& work) {
  const auto plan =
      gpu::plan_reduction(work.response.request(), work.active.size(), work.link.adds_float8);
  if (refused(plan, work.outcomes)) return {};
  const std::size_t wire = size_of(plan->wire);
  std::vector<Tensor> direct;
  std::vector<Tensor> packed;
  std::vector<std::size_t> sizes;
  for (std::size_t i = 0; i < work.entries.size(); ++i) {
    const Entry& entry = work.entries[i];
    auto output = work.output_of(i, entry.request.shape);
    HVD_RETURN_IF_ERROR(output.status());
    const Tensor tensor{entry.input, *output, static_cast<std::size_t>(entry.request.elements())};
    if (tensor.elements == 0) continue;
    const std::size_t bytes = tensor.elements * wire;
    const bool alone = work.entries.size() == 1 || bytes > work.options.packed_bytes;
    if (alone && plan->type == plan->wire) {
      direct.push_back(tensor);
    } else {
      packed.push_back(tensor);
      sizes.push_back(bytes);
    }
  }
  if (direct.empty() && packed.empty()) return {};

  const auto packing = gpu::pack(sizes);
  std::byte* buffer = nullptr;
  if (!packed.empty()) {
    auto room = work.world.buffer(work.lane(), packing.bytes);
    HVD_RETURN_IF_ERROR(room.status());
    buffer = *room;
  }
  std::vector<Stretch> in;
  for (std::size_t i = 0; i < packed.size(); ++i) {
    in.push_back({packed[i].input, buffer + packing.offsets[i], packed[i].elements});
  }
  HVD_RETURN_IF_ERROR(work.copy(plan->in, in));
  if (!plan->in.changes_nothing()) {
    std::vector<Stretch> scaled;
    for (auto& tensor : direct) {
      scaled.push_back({tensor.input, tensor.output, tensor.elements});
      tensor.input = tensor.output;
    }
    HVD_RETURN_IF_ERROR(work.copy(plan->in, scaled));
  }

  const auto reduce_all = [&](Communicator& all) -> Status {
    if (buffer != nullptr) {
      HVD_RETURN_IF_ERROR(
          all.all_reduce(buffer, buffer, packing.bytes / wire, plan->wire, plan->reduction));
    }
    for (const auto& tensor : direct) {
      HVD_RETURN_IF_ERROR(all.all_reduce(tensor.input, tensor.output, tensor.elements, plan->wire,
                                         plan->reduction));
    }
    return {};
  };
  HVD_RETURN_IF_ERROR(work.world.together(work.link, reduce_all));

  std::vector<Stretch> out;
  for (std::size_t i = 0; i < packed.size(); ++i) {
    out.push_back({buffer + packing.offsets[i], packed[i].output, packed[i].elements});
  }
  HVD_RETURN_IF_ERROR(work.copy(plan->out, out));
  std::vector<Stretch> finished;
  for (const auto& tensor : direct) {
    finished.push_back({tensor.output, tensor.output, tensor.elements});
  }
  return pass_in_place(work, plan->out, std::move(finished));
}

// A block for each rank, with its rows of all tensors; the largest says how large all are.
Status gpu_reducescatter(GpuWork& work) {
  const auto plan =
      gpu::plan_reduction(work.response.request(), work.active.size(), work.link.adds_float8);
  if (refused(plan, work.outcomes)) return {};
  const std::size_t wire = size_of(plan->wire);
  const auto rows_of = [&](std::size_t i, int position) {
    return reducescatter_rows(rows(work.entries[i].request), work.group.size(), position);
  };
  const auto row_elements = [&](std::size_t i) {
    return row_bytes(work.entries[i].request) / size_of(plan->type);
  };
  std::vector<gpu::Packing> blocks;
  std::size_t block = 0;
  for (const int position : work.active.positions) {
    std::vector<std::size_t> sizes;
    for (std::size_t i = 0; i < work.entries.size(); ++i) {
      sizes.push_back(static_cast<std::size_t>(rows_of(i, position).count) * row_elements(i) *
                      wire);
    }
    blocks.push_back(gpu::pack(sizes));
    block = std::max(block, blocks.back().bytes);
  }
  std::vector<std::byte*> outputs;
  for (std::size_t i = 0; i < work.entries.size(); ++i) {
    auto output = work.output_of(
        i, with_rows(work.entries[i].request.shape, rows_of(i, work.group.rank).count));
    HVD_RETURN_IF_ERROR(output.status());
    outputs.push_back(*output);
  }
  if (block == 0) return {};

  const auto ranks = static_cast<std::size_t>(work.active.size());
  auto room = work.world.buffer(work.lane(), block * ranks);
  HVD_RETURN_IF_ERROR(room.status());
  std::byte* const buffer = *room;
  std::vector<Stretch> in;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    for (std::size_t i = 0; i < work.entries.size(); ++i) {
      const auto [begin, count] = rows_of(i, work.active.positions[rank]);
      const std::size_t elements = static_cast<std::size_t>(count) * row_elements(i);
      if (elements == 0) continue;
      const auto* const from = static_cast<const std::byte*>(work.entries[i].input) +
                               static_cast<std::size_t>(begin) * row_bytes(work.entries[i].request);
      in.push_back({from, buffer + rank * block + blocks[rank].offsets[i], elements});
    }
  }
  HVD_RETURN_IF_ERROR(work.copy(plan->in, in));
  const auto own = static_cast<std::size_t>(work.active.rank);
  std::byte* const kept = buffer + own * block;
  HVD_RETURN_IF_ERROR(work.world.together(work.link, [&](Communicator& all) {
    return all.reduce_scatter(buffer, kept, block / wire, plan->wire, plan->reduction);
  }));
  std::vector<Stretch> out;
  for (std::size_t i = 0; i < work.entries.size(); ++i) {
    const auto count = static_cast<std::size_t>(rows_of(i, work.group.rank).count);
    if (count * row_elements(i) == 0) continue;
    out.push_back({kept + blocks[own].offsets[i], outputs[i], count * row_elements(i)});
  }
  return work.copy(plan->out, out);
}

}  // namespace hvd::runtime
