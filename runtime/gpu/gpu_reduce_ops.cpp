// allreduce and reducescatter.
#include <algorithm>

#include "runtime/gpu/gpu_operation.h"

namespace hvd::runtime {
namespace {

using gpu::Communicator;
using gpu::CopyExtent;
using gpu::ReductionPlan;

struct Tensor {
  const void* input;
  std::byte* output;
  std::size_t elements;
};

using Reduced = Tensor;  // of the wire's type, and of as many shares as there are by hosts

Status reduce_flat(const GpuWork& work, const ReductionPlan& plan,
                   const std::vector<Reduced>& reduced) {
  return work.world.together(work.link, [&](Communicator& all) -> Status {
    for (const auto& [in, out, elements] : reduced) {
      HVD_RETURN_IF_ERROR(all.all_reduce(in, out, elements, plan.wire, plan.reduction));
    }
    return {};
  });
}

// Each rank reduces a share inside its host, then between the hosts, and gets the others' inside.
Status reduce_by_hosts(const GpuWork& work, const ReductionPlan& plan,
                       const std::vector<Reduced>& reduced) {
  gpu::Link& link = work.link;
  const std::size_t wire = size_of(plan.wire);
  const auto each = [&](gpu::Link::Place place, auto call) {
    return work.world.together(link, place, [&](Communicator& some) -> Status {
      for (const auto& tensor : reduced) {
        const std::size_t share = tensor.elements / link.local_size;
        std::byte* const own = tensor.output + link.local_rank * share * wire;
        HVD_RETURN_IF_ERROR(call(some, tensor, own, share));
      }
      return {};
    });
  };
  HVD_RETURN_IF_ERROR(each(&gpu::Link::inside, [&](auto& inside, auto& tensor, auto* own, auto n) {
    return inside.reduce_scatter(tensor.input, own, n, plan.wire, plan.reduction);
  }));
  HVD_RETURN_IF_ERROR(each(&gpu::Link::across, [&](auto& across, auto&, auto* own, auto n) {
    return across.all_reduce(own, own, n, plan.wire, plan.reduction);
  }));
  return each(&gpu::Link::inside, [&](auto& inside, auto& tensor, auto* own, auto n) {
    return inside.all_gather(own, tensor.output, n * wire);
  });
}

// Tensors that are reduced where they lie: what is to be done before and after.
Status pass_in_place(const GpuWork& work, const gpu::ElementCast& cast,
                     std::vector<CopyExtent> extents) {
  return cast.changes_nothing() ? Status() : work.copy(cast, extents);
}

// The tensors of an allreduce, or parts of them: some are reduced where they lie, others in a
// buffer.
struct Parts {
  std::vector<Tensor> direct;
  std::vector<Tensor> packed;
};

Result<Parts> divide(GpuWork& work, const ReductionPlan& plan, std::size_t shares) {
  Parts parts;
  for (std::size_t i = 0; i < work.entries.size(); ++i) {
    const Entry& entry = work.entries[i];
    auto output = work.output_of(i, entry.request.shape);
    HVD_RETURN_IF_ERROR(output.status());
    const Tensor tensor{entry.input, *output, static_cast<std::size_t>(entry.request.elements())};
    if (tensor.elements == 0) continue;
    const std::size_t bytes = tensor.elements * size_of(plan.wire);
    const bool alone = work.entries.size() == 1 || bytes > work.options.packed_bytes;
    const bool stays = alone && plan.type == plan.wire;
    // By hosts each rank takes as much of it on; what is left over is packed.
    const std::size_t shared = stays ? tensor.elements / shares * shares : 0;
    const std::size_t left_over = tensor.elements - shared;
    if (shared > 0) parts.direct.push_back({tensor.input, tensor.output, shared});
    if (left_over > 0) {
      const std::size_t skip = shared * size_of(plan.type);
      parts.packed.push_back(
          {static_cast<const std::byte*>(tensor.input) + skip, tensor.output + skip, left_over});
    }
  }
  return parts;
}

// The packed parts lie here while they are reduced.
struct PackBuffer {
  gpu::Packing packing;
  Reduced whole{};  // of no elements if nothing is packed

  std::byte* place_of(std::size_t part) const { return whole.output + packing.offsets[part]; }
};

Result<PackBuffer> make_buffer(const GpuWork& work, const std::vector<Tensor>& packed,
                               std::size_t wire, std::size_t shares) {
  if (packed.empty()) return PackBuffer{};
  std::vector<std::size_t> sizes;
  sizes.reserve(packed.size());
  for (const auto& tensor : packed) sizes.push_back(tensor.elements * wire);
  PackBuffer buffer{.packing = gpu::pack(sizes)};
  const std::size_t unit = shares * gpu::kAlignment;
  const std::size_t bytes = (buffer.packing.bytes + unit - 1) / unit * unit;
  auto room = work.world.buffer(work.lane(), bytes);
  HVD_RETURN_IF_ERROR(room.status());
  buffer.whole = {*room, *room, bytes / wire};
  return buffer;
}

}  // namespace

Status gpu_allreduce(GpuWork& work) {
  if (work.response.request().op == ReduceOp::adasum) return gpu_adasum(work);
  const auto plan =
      gpu::plan_reduction(work.response.request(), work.active.size(), work.link.adds_float8);
  const std::size_t shares = work.link.by_hosts ? work.link.local_size : 1;
  auto parts = divide(work, plan, shares);
  HVD_RETURN_IF_ERROR(parts.status());
  auto& [direct, packed] = *parts;
  if (direct.empty() && packed.empty()) return {};
  auto buffer = make_buffer(work, packed, size_of(plan.wire), shares);
  HVD_RETURN_IF_ERROR(buffer.status());

  std::vector<CopyExtent> in;
  for (std::size_t i = 0; i < packed.size(); ++i) {
    in.push_back({packed[i].input, buffer->place_of(i), packed[i].elements});
  }
  HVD_RETURN_IF_ERROR(work.copy(plan.in, in));
  if (!plan.in.changes_nothing()) {
    std::vector<CopyExtent> scaled;
    for (auto& tensor : direct) {
      scaled.push_back({tensor.input, tensor.output, tensor.elements});
      tensor.input = tensor.output;
    }
    HVD_RETURN_IF_ERROR(work.copy(plan.in, scaled));
  }

  std::vector<Reduced> reduced = direct;
  if (!packed.empty()) reduced.insert(reduced.begin(), buffer->whole);
  HVD_RETURN_IF_ERROR(work.link.by_hosts ? reduce_by_hosts(work, plan, reduced)
                                         : reduce_flat(work, plan, reduced));

  std::vector<CopyExtent> out;
  for (std::size_t i = 0; i < packed.size(); ++i) {
    out.push_back({buffer->place_of(i), packed[i].output, packed[i].elements});
  }
  HVD_RETURN_IF_ERROR(work.copy(plan.out, out));
  std::vector<CopyExtent> finished;
  for (const auto& tensor : direct) {
    finished.push_back({tensor.output, tensor.output, tensor.elements});
  }
  return pass_in_place(work, plan.out, std::move(finished));
}

// A block for each rank, with its rows of all tensors; the largest says how large all are.
Status gpu_reducescatter(GpuWork& work) {
  const auto plan =
      gpu::plan_reduction(work.response.request(), work.active.size(), work.link.adds_float8);
  const std::size_t wire = size_of(plan.wire);
  const auto rows_of = [&](std::size_t i, int position) {
    return reducescatter_rows(rows(work.entries[i].request), work.group.size(), position);
  };
  const auto row_elements = [&](std::size_t i) {
    return row_bytes(work.entries[i].request) / size_of(plan.type);
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
  std::vector<CopyExtent> in;
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
  HVD_RETURN_IF_ERROR(work.copy(plan.in, in));
  const auto own = static_cast<std::size_t>(work.active.rank);
  std::byte* const kept = buffer + own * block;
  HVD_RETURN_IF_ERROR(work.world.together(work.link, [&](Communicator& all) {
    return all.reduce_scatter(buffer, kept, block / wire, plan.wire, plan.reduction);
  }));
  std::vector<CopyExtent> out;
  for (std::size_t i = 0; i < work.entries.size(); ++i) {
    const auto count = static_cast<std::size_t>(rows_of(i, work.group.rank).count);
    if (count * row_elements(i) == 0) continue;
    out.push_back({kept + blocks[own].offsets[i], outputs[i], count * row_elements(i)});
  }
  return work.copy(plan.out, out);
}

}  // namespace hvd::runtime
