// allgather, alltoall, broadcast and barrier: nothing is computed, so all of it is bytes.
#include <algorithm>
#include <cstring>

#include "runtime/gpu/gpu_operation.h"

namespace hvd::runtime {
namespace {

using gpu::Communicator;
using gpu::CopyExtent;

// The shares of the ranks in one tensor, and the memory where it goes.
struct Gathered {
  const std::byte* input;
  std::byte* output;
  std::vector<std::size_t> bytes;  // from each active rank
  std::size_t before;              // of those, in front of this rank's
  std::size_t total;
};

Result<Gathered> gathered(GpuWork& work, std::size_t i) {
  const Request& request = work.entries[i].request;
  const auto& extents = work.response.tensors[i]->first_extents;
  const std::size_t row = row_bytes(request);
  Gathered tensor{static_cast<const std::byte*>(work.entries[i].input), nullptr, {}, 0, 0};
  std::int64_t all_rows = 0;
  for (const int position : work.active.positions) {
    const auto count = extents[static_cast<std::size_t>(position)];
    if (position == work.group.rank) tensor.before = static_cast<std::size_t>(all_rows) * row;
    all_rows += count;
    tensor.bytes.push_back(static_cast<std::size_t>(count) * row);
  }
  tensor.total = static_cast<std::size_t>(all_rows) * row;
  auto output = work.output_of(i, with_rows(request.shape, all_rows));
  HVD_RETURN_IF_ERROR(output.status());
  tensor.output = *output;
  return tensor;
}

bool lies_well(const Gathered& tensor, std::size_t own_bytes) {
  return tensor.input == tensor.output + tensor.before ||
         !overlap(tensor.input, own_bytes, tensor.output, tensor.total);
}

// Blocks of one size, in which each rank's rows of all tensors lie.
Status gather_in_blocks(GpuWork& work, const std::vector<Gathered>& tensors) {
  const auto ranks = static_cast<std::size_t>(work.active.size());
  const auto own = static_cast<std::size_t>(work.active.rank);
  std::vector<gpu::Packing> packings;
  std::size_t block = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::vector<std::size_t> sizes;
    for (const auto& tensor : tensors) sizes.push_back(tensor.bytes[rank]);
    packings.push_back(gpu::pack(sizes));
    block = std::max(block, packings.back().bytes);
  }
  auto room = work.world.buffer(work.lane(), block * ranks);
  HVD_RETURN_IF_ERROR(room.status());
  std::vector<CopyExtent> in;
  std::vector<CopyExtent> out;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    std::byte* to = tensors[i].output;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const std::size_t bytes = tensors[i].bytes[rank];
      std::byte* const place = *room + rank * block + packings[rank].offsets[i];
      if (bytes > 0 && rank == own) in.push_back({tensors[i].input, place, bytes});
      if (bytes > 0) out.push_back({place, to, bytes});
      to += bytes;
    }
  }
  HVD_RETURN_IF_ERROR(work.copy({}, in));
  HVD_RETURN_IF_ERROR(work.world.together(work.link, [&](Communicator& all) {
    return all.all_gather(*room + own * block, *room, block);
  }));
  return work.copy({}, out);
}

// Each rank's rows of each tensor straight to where they belong.
Status gather_in_place(GpuWork& work, const std::vector<Gathered>& tensors) {
  const auto own = static_cast<std::size_t>(work.active.rank);
  for (const auto& tensor : tensors) {
    const std::byte* input = tensor.input;
    if (!lies_well(tensor, tensor.bytes[own])) {
      auto room = work.world.buffer(work.lane(), tensor.bytes[own]);
      HVD_RETURN_IF_ERROR(room.status());
      HVD_RETURN_IF_ERROR(work.copy_bytes(input, *room, tensor.bytes[own]));
      input = *room;
    }
    HVD_RETURN_IF_ERROR(work.copy_bytes(input, tensor.output + tensor.before, tensor.bytes[own]));
  }
  return work.world.together(work.link, [&](Communicator& all) -> Status {
    for (const auto& tensor : tensors) {
      std::byte* at = tensor.output;
      for (std::size_t rank = 0; rank < tensor.bytes.size(); ++rank) {
        const std::size_t bytes = tensor.bytes[rank];
        if (bytes > 0) HVD_RETURN_IF_ERROR(all.broadcast(at, at, bytes, static_cast<int>(rank)));
        at += bytes;
      }
    }
    return {};
  });
}

}  // namespace

Status gpu_allgather(GpuWork& work) {
  const auto ranks = static_cast<std::size_t>(work.active.size());
  const auto own = static_cast<std::size_t>(work.active.rank);
  std::vector<Gathered> tensors;
  std::vector<std::size_t> from_ranks(ranks);
  bool lie_well = true;  // for this rank; the ways below are the same for the others
  for (std::size_t i = 0; i < work.entries.size(); ++i) {
    auto tensor = gathered(work, i);
    HVD_RETURN_IF_ERROR(tensor.status());
    if (tensor->total == 0) continue;
    for (std::size_t rank = 0; rank < ranks; ++rank) from_ranks[rank] += tensor->bytes[rank];
    lie_well = lie_well && lies_well(*tensor, tensor->bytes[own]);
    tensors.push_back(std::move(*tensor));
  }
  if (tensors.empty()) return {};
  const auto& first = tensors.front();
  const bool even = std::all_of(first.bytes.begin(), first.bytes.end(),
                                [&](std::size_t bytes) { return bytes == first.bytes.front(); });
  if (tensors.size() == 1 && even) {
    const std::byte* input = first.input;
    if (!lie_well) {
      auto room = work.world.buffer(work.lane(), first.bytes[own]);
      HVD_RETURN_IF_ERROR(room.status());
      HVD_RETURN_IF_ERROR(work.copy_bytes(input, *room, first.bytes[own]));
      input = *room;
    }
    return work.world.together(work.link, [&](Communicator& all) {
      return all.all_gather(input, first.output, first.bytes[own]);
    });
  }
  if (gpu::gathers_in_blocks(from_ranks)) return gather_in_blocks(work, tensors);
  return gather_in_place(work, tensors);
}

Status gpu_broadcast(GpuWork& work) {
  for (std::size_t i = 0; i < work.entries.size(); ++i) {
    const Entry& entry = work.entries[i];
    const auto& ranks = work.active.ranks;
    const auto root = std::find(ranks.begin(), ranks.end(), entry.request.root);
    if (root == ranks.end()) {
      work.outcomes[i].failure = root_has_joined(entry.request);
      continue;
    }
    auto output = work.output_of(i, entry.request.shape);
    HVD_RETURN_IF_ERROR(output.status());
    const std::size_t bytes = entry.request.bytes();
    if (bytes == 0) continue;
    const int from = static_cast<int>(root - ranks.begin());
    const void* const input = from == work.active.rank ? entry.input : *output;
    HVD_RETURN_IF_ERROR(work.world.together(
        work.link, [&](Communicator& all) { return all.broadcast(input, *output, bytes, from); }));
  }
  return {};
}

namespace {

// The splits of all active ranks of the set, one after the other.
std::vector<std::int64_t> splits_of_all(GpuWork& work, const Entry& entry) {
  auto own = encode_splits(entry, work.group.size());
  if (work.active.size() == 1) return own;
  std::string bytes(own.size() * sizeof(std::int64_t), '\0');
  std::memcpy(bytes.data(), own.data(), bytes.size());
  std::vector<std::int64_t> matrix;
  for (const auto& text : work.world.tell(work.group, work.active, bytes)) {
    const std::size_t at = matrix.size();
    matrix.resize(at + own.size());
    std::memcpy(&matrix[at], text.data(), text.size());
  }
  return matrix;
}

Status alltoall_one(GpuWork& work, std::size_t i) {
  Entry& entry = work.entries[i];
  const int set_size = work.group.size();
  const auto ranks = static_cast<std::size_t>(work.active.size());
  const auto own = static_cast<std::size_t>(work.active.rank);
  const auto matrix = splits_of_all(work, entry);
  const std::size_t words = split_words(set_size);
  const auto& extents = work.response.tensors[i]->first_extents;
  const auto extent_of = [&](std::size_t rank) {
    return extents[static_cast<std::size_t>(work.active.positions[rank])];
  };
  const auto split = [&](std::size_t from, int position) {
    return split_for({&matrix[from * words], words}, position, extent_of(from), set_size);
  };
  // Each rank sees all splits, so that all come to the same verdict before anything is sent.
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const Status right = check_splits(entry.request, {&matrix[rank * words], words},
                                      work.active.ranks[rank], extent_of(rank), set_size);
    if (right.ok()) continue;
    work.outcomes[i].failure = right;
    return {};
  }
  const std::size_t row = row_bytes(entry.request);
  std::vector<std::int64_t> received(static_cast<std::size_t>(set_size));
  std::int64_t all_rows = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto count = split(rank, work.group.rank);
    received[static_cast<std::size_t>(work.active.positions[rank])] = count;
    all_rows += count;
  }
  auto output = work.output_of(i, with_rows(entry.request.shape, all_rows));
  HVD_RETURN_IF_ERROR(output.status());
  const auto* input = static_cast<const std::byte*>(entry.input);
  const std::size_t input_bytes = entry.request.bytes();
  if (overlap(input, input_bytes, *output, static_cast<std::size_t>(all_rows) * row)) {
    auto room = work.world.buffer(work.lane(), input_bytes);
    HVD_RETURN_IF_ERROR(room.status());
    HVD_RETURN_IF_ERROR(work.copy_bytes(input, *room, input_bytes));
    input = *room;
  }
  const auto send_and_receive = [&](Communicator& all) -> Status {
    std::size_t sent = 0;
    std::size_t next = 0;  // of the active ranks
    for (int position = 0; position < set_size; ++position) {
      const std::size_t bytes = static_cast<std::size_t>(split(own, position)) * row;
      // Rows for ranks that have joined are dropped.
      if (next < ranks && work.active.positions[next] == position) {
        if (bytes > 0) HVD_RETURN_IF_ERROR(all.send(input + sent, bytes, static_cast<int>(next)));
        ++next;
      }
      sent += bytes;
    }
    std::byte* at = *output;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const std::size_t bytes = static_cast<std::size_t>(split(rank, work.group.rank)) * row;
      if (bytes > 0) HVD_RETURN_IF_ERROR(all.receive(at, bytes, static_cast<int>(rank)));
      at += bytes;
    }
    return {};
  };
  HVD_RETURN_IF_ERROR(work.world.together(work.link, send_and_receive));
  work.outcomes[i].received_splits = std::move(received);
  return {};
}

}  // namespace

Status gpu_alltoall(GpuWork& work) {
  for (std::size_t i = 0; i < work.entries.size(); ++i) {
    HVD_RETURN_IF_ERROR(alltoall_one(work, i));
  }
  return {};
}

// No rank's lane gets past it before all have come.
Status gpu_barrier(GpuWork& work) {
  auto room = work.world.buffer(work.lane(), gpu::kAlignment);
  HVD_RETURN_IF_ERROR(room.status());
  return work.world.together(work.link, [&](Communicator& all) {
    return all.all_reduce(*room, *room, 1, DataType::int32, gpu::Reduction::max);
  });
}

}  // namespace hvd::runtime
