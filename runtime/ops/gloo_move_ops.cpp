// allgather, alltoall, broadcast, barrier and send_recv: nothing is computed.
#include <cstring>

#include "base/machine/bulk_copy.h"
#include "base/text.h"
#include "runtime/ops/algorithms.h"
#include "runtime/ops/direct.h"
#include "runtime/ops/fusion_buffer.h"
#include "runtime/ops/gloo_operation.h"
#include "runtime/ops/ring.h"

namespace hvd::runtime {
namespace {

class GlooAllgather final : public GlooOperation {
 public:
  GlooAllgather(const std::shared_ptr<Mesh>& mesh, const GlooOperationOptions& options)
      : GlooOperation(Kind::allgather, "gloo allgather", mesh, options) {}

 private:
  struct Tensor {
    std::byte* output;
    std::vector<std::size_t> bytes;  // from each active rank
    std::size_t total;
    bool packed;
  };

  void run(const Work& work, const Peers& peers) override {
    const auto ranks = static_cast<std::size_t>(work.active.size());
    const auto own = static_cast<std::size_t>(peers.rank());
    tensors_.clear();
    std::size_t total = 0;
    for (std::size_t i = 0; i < work.entries.size(); ++i) {
      tensors_.push_back(prepare(work, i));
      total += tensors_.back().total;
    }
    // The own rows go where they belong before anything arrives beside them.
    const bool direct = total <= options().direct_bytes;
    std::vector<std::size_t> packed_bytes(ranks);
    for (auto& tensor : tensors_) {
      tensor.packed = tensors_.size() > 1 && (direct || tensor.total <= options().packed_bytes);
      if (!tensor.packed) continue;
      for (std::size_t rank = 0; rank < ranks; ++rank) packed_bytes[rank] += tensor.bytes[rank];
    }
    std::vector<std::byte*> packed(ranks + 1);  // where each rank's packed rows are
    std::size_t packed_total = 0;
    for (const auto bytes : packed_bytes) packed_total += bytes;
    packed[0] = buffer_.reserve(packed_total);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      packed[rank + 1] = packed[rank] + packed_bytes[rank];
    }
    std::vector<Block> blocks(ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      blocks[rank].push_back({nullptr, packed[rank], packed_bytes[rank]});
    }
    std::byte* own_packed = packed[own];
    trace::ActivityScope packing(trace::Activity::memcpy_in_fusion_buffer, packed_total > 0);
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const Tensor& tensor = tensors_[i];
      std::byte* at = tensor.output;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const std::size_t bytes = tensor.bytes[rank];
        std::byte* const to = tensor.packed ? own_packed : at;
        if (rank == own && bytes > 0) std::memmove(to, work.entries[i].input, bytes);
        if (rank == own && tensor.packed) own_packed += bytes;
        if (!tensor.packed) blocks[rank].push_back({nullptr, at, bytes});
        at += bytes;
      }
    }
    packing.end();
    if (direct) {
      // All packed, or one tensor: a block is one extent.
      std::vector<Extent> extents;
      for (const auto& block : blocks) {
        const Part& part = tensors_.size() > 1 ? block.front() : block.back();
        extents.push_back({part.result, part.bytes});
      }
      gather_all(peers, extents[own], extents);
    } else {
      const auto gather = choose_directly(work, total) ? direct_allgather : ring_allgather;
      if (work.plan != nullptr) {
        hierarchical_allgather(peers, *work.plan, *mates_of(work, peers, scratch_), blocks, gather);
      } else {
        gather(peers, blocks);
      }
    }
    const trace::ActivityScope unpacking(trace::Activity::memcpy_out_fusion_buffer,
                                         packed_total > 0);
    unpack(packed, ranks);
  }

  Tensor prepare(const Work& work, std::size_t i) {
    Entry& entry = work.entries[i];
    const auto& extents = work.response.tensors[i]->first_extents;
    const std::size_t row = row_bytes(entry.request);
    Tensor tensor{};
    std::int64_t all_rows = 0;
    for (const int position : work.active.positions) {
      const auto count = extents[static_cast<std::size_t>(position)];
      all_rows += count;
      tensor.bytes.push_back(static_cast<std::size_t>(count) * row);
    }
    tensor.total = static_cast<std::size_t>(all_rows) * row;
    tensor.output = output_of(entry, with_rows(entry.request.shape, all_rows), work.outcomes[i]);
    return tensor;
  }

  void unpack(const std::vector<std::byte*>& packed, std::size_t ranks) {
    std::vector<std::byte*> from(packed);
    for (const auto& tensor : tensors_) {
      if (!tensor.packed) continue;
      std::byte* to = tensor.output;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const std::size_t bytes = tensor.bytes[rank];
        if (bytes == 0) continue;
        bulk_copy(to, from[rank], bytes);
        from[rank] += bytes;
        to += bytes;
      }
    }
  }

  std::vector<Tensor> tensors_;
  FusionBuffer buffer_;
  FusionBuffer scratch_;
};

class GlooAlltoall final : public GlooOperation {
 public:
  GlooAlltoall(const std::shared_ptr<Mesh>& mesh, const GlooOperationOptions& options)
      : GlooOperation(Kind::alltoall, "gloo alltoall", mesh, options) {}

 private:
  void run(const Work& work, const Peers& peers) override {
    for (std::size_t i = 0; i < work.entries.size(); ++i) {
      run_one(work, peers, *work.response.tensors[i], work.entries[i], work.outcomes[i]);
    }
  }

  void run_one(const Work& work, const Peers& peers, const ResponseTensor& tensor, Entry& entry,
               Outcome& outcome) {
    const int set_size = work.group.size();
    const auto ranks = static_cast<std::size_t>(work.active.size());
    const std::size_t words = split_words(set_size);
    std::vector<std::int64_t> matrix(ranks * words);
    const auto splits_of = [&](std::size_t rank) {
      return std::span<const std::int64_t>(&matrix[rank * words], words);
    };
    const auto extent_of = [&](std::size_t rank) {
      return tensor.first_extents[static_cast<std::size_t>(work.active.positions[rank])];
    };
    exchange_splits(peers, encode_splits(entry, set_size), matrix);
    // Each rank sees all splits, so that all come to the same verdict before anything is sent.
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const Status right = check_splits(entry.request, splits_of(rank), work.active.ranks[rank],
                                        extent_of(rank), set_size);
      if (right.ok()) continue;
      outcome.failure = right;
      return;
    }
    const auto own = static_cast<std::size_t>(peers.rank());
    const std::size_t row = row_bytes(entry.request);
    std::vector<std::int64_t> received(static_cast<std::size_t>(set_size));
    std::int64_t all_rows = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const auto count = split_for(splits_of(rank), work.group.rank, extent_of(rank), set_size);
      received[static_cast<std::size_t>(work.active.positions[rank])] = count;
      all_rows += count;
    }
    std::byte* const output = output_of(entry, with_rows(entry.request.shape, all_rows), outcome);
    const std::byte* const input =
        input_of(entry, output, static_cast<std::size_t>(all_rows) * row);
    std::vector<Extent> sends;
    std::size_t offset = 0;
    std::size_t next = 0;  // of the active ranks
    for (int position = 0; position < set_size; ++position) {
      const auto count = split_for(splits_of(own), position, extent_of(own), set_size);
      const std::size_t bytes = static_cast<std::size_t>(count) * row;
      // Rows for ranks that have joined are dropped.
      if (next < ranks && work.active.positions[next] == position) {
        sends.push_back({const_cast<std::byte*>(input) + offset, bytes});
        ++next;
      }
      offset += bytes;
    }
    std::vector<Extent> receives;
    offset = 0;
    for (const int position : work.active.positions) {
      const std::size_t bytes =
          static_cast<std::size_t>(received[static_cast<std::size_t>(position)]) * row;
      receives.push_back({output + offset, bytes});
      offset += bytes;
    }
    exchange(peers, sends, receives);
    outcome.received_splits = std::move(received);
  }

  static void exchange_splits(const Peers& peers, std::vector<std::int64_t> own,
                              std::vector<std::int64_t>& matrix) {
    const std::size_t bytes = own.size() * sizeof(std::int64_t);
    std::vector<Extent> receives;
    for (int rank = 0; rank < peers.size(); ++rank) {
      auto* const row = &matrix[static_cast<std::size_t>(rank) * own.size()];
      receives.push_back({reinterpret_cast<std::byte*>(row), bytes});
    }
    gather_all(peers, {reinterpret_cast<std::byte*>(own.data()), bytes}, receives);
  }

  // The input, or a copy of it where the output would overwrite what is yet to be sent.
  const std::byte* input_of(const Entry& entry, const std::byte* output, std::size_t output_bytes) {
    const auto* const input = static_cast<const std::byte*>(entry.input);
    const std::size_t bytes = entry.request.bytes();
    if (!overlap(input, bytes, output, output_bytes)) return input;
    std::byte* const copy = buffer_.reserve(bytes);
    bulk_copy(copy, input, bytes);
    return copy;
  }

  FusionBuffer buffer_;
};

class GlooBroadcast final : public GlooOperation {
 public:
  GlooBroadcast(const std::shared_ptr<Mesh>& mesh, const GlooOperationOptions& options)
      : GlooOperation(Kind::broadcast, "gloo broadcast", mesh, options) {}

 private:
  void run(const Work& work, const Peers& peers) override {
    for (std::size_t i = 0; i < work.entries.size(); ++i) {
      run_one(work.active, peers, work.entries[i], work.outcomes[i]);
    }
  }

  void run_one(const Active& active, const Peers& peers, Entry& entry, Outcome& outcome) {
    int root = -1;
    for (int rank = 0; rank < active.size(); ++rank) {
      if (active.ranks[static_cast<std::size_t>(rank)] == entry.request.root) root = rank;
    }
    if (root < 0) {
      outcome.failure = root_has_joined(entry.request);
      return;
    }
    std::byte* const output = output_of(entry, entry.request.shape, outcome);
    const auto bytes = entry.request.bytes();
    if (root == peers.rank() && output != entry.input && bytes > 0) {
      bulk_copy(output, entry.input, bytes);
    }
    tree_broadcast(peers, output, bytes, root);
  }
};

class GlooBarrier final : public GlooOperation {
 public:
  GlooBarrier(const std::shared_ptr<Mesh>& mesh, const GlooOperationOptions& options)
      : GlooOperation(Kind::barrier, "gloo barrier", mesh, options) {}

 private:
  void run(const Work& /*work*/, const Peers& peers) override { barrier(peers); }
};

class GlooSendRecv final : public GlooOperation {
 public:
  GlooSendRecv(const std::shared_ptr<Mesh>& mesh, const GlooOperationOptions& options)
      : GlooOperation(Kind::send_recv, "gloo send_recv", mesh, options) {}

 private:
  void run(const Work& work, const Peers& peers) override {
    Entry& entry = work.entries.front();
    const auto bytes = entry.request.bytes();
    const int sender = entry.request.ranks.front();
    const auto other = static_cast<std::size_t>(peers.next());
    std::vector<Extent> sends(2);
    std::vector<Extent> receives(2);
    if (work.active.ranks[static_cast<std::size_t>(peers.rank())] == sender) {
      sends[other] = {const_cast<std::byte*>(static_cast<const std::byte*>(entry.input)), bytes};
      work.outcomes.front().shape = entry.request.shape;
    } else {
      receives[other] = {output_of(entry, entry.request.shape, work.outcomes.front()), bytes};
    }
    exchange(peers, sends, receives);
  }
};

}  // namespace

std::unique_ptr<Operation> make_gloo_allgather(const std::shared_ptr<Mesh>& mesh,
                                               const GlooOperationOptions& options) {
  return std::make_unique<GlooAllgather>(mesh, options);
}

std::unique_ptr<Operation> make_gloo_alltoall(const std::shared_ptr<Mesh>& mesh,
                                              const GlooOperationOptions& options) {
  return std::make_unique<GlooAlltoall>(mesh, options);
}

std::unique_ptr<Operation> make_gloo_broadcast(const std::shared_ptr<Mesh>& mesh,
                                               const GlooOperationOptions& options) {
  return std::make_unique<GlooBroadcast>(mesh, options);
}

std::unique_ptr<Operation> make_gloo_barrier(const std::shared_ptr<Mesh>& mesh,
                                             const GlooOperationOptions& options) {
  return std::make_unique<GlooBarrier>(mesh, options);
}

std::unique_ptr<Operation> make_gloo_send_recv(const std::shared_ptr<Mesh>& mesh,
                                               const GlooOperationOptions& options) {
  return std::make_unique<GlooSendRecv>(mesh, options);
}

}  // namespace hvd::runtime
