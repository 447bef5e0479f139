#include "runtime/ops/library_ops.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <numeric>

#include "base/machine/bulk_copy.h"
#include "base/text.h"
#include "runtime/core/activity.h"
#include "runtime/core/batch_arithmetic.h"
#include "runtime/ops/fusion_buffer.h"
#include "runtime/ops/gloo_operation.h"
#include "runtime/ops/layout.h"

namespace hvd::runtime {
namespace {

using trace::Activity;
using trace::ActivityScope;

std::size_t bytes_of(const Response& response) {
  std::size_t bytes = 0;
  for (const auto& tensor : response.tensors) bytes += runtime::bytes_of(*tensor);
  return bytes;
}

class LibraryOperation : public Operation {
 public:
  LibraryOperation(Kind kind, std::shared_ptr<LibraryWorld> world)
      : kind_(kind),
        name_(cat(world->library().name(), " ", kind_name(kind))),
        world_(std::move(world)) {}

  std::string_view name() const final { return name_; }
  bool enabled(const Response& response, const Group& group) const final {
    return response.kind == kind_ && group.size() > 1 && response.joined.empty() &&
           is_on_host(response) && bytes_of(response) <= INT_MAX && response.request().tree == 0 &&
           reduces(response, group);
  }
  Status execute(const Response& response, const Group& group, const Entries& entries,
                 std::span<Outcome> outcomes) final {
    try {
      await_inputs(entries);
      const Status done = world_->call(group, [&](LibraryCommunicator& communicator) {
        return run({response, group, entries, outcomes, communicator});
      });
      outputs_.clear();
      return done.with_context(name_);
    } catch (...) {
      return status_of_current_exception(name_);
    }
  }
  void forget(int process_set) final { world_->forget(process_set); }
  void abort() final { world_->abort({Code::aborted, "the operation was aborted"}); }

 protected:
  struct Work {
    const Response& response;
    const Group& group;
    const Entries& entries;
    std::span<Outcome> outcomes;
    LibraryCommunicator& communicator;
    std::size_t size() const { return static_cast<std::size_t>(group.size()); }
    std::size_t own() const { return static_cast<std::size_t>(group.rank); }
  };
  const Library& library() const { return world_->library(); }
  // An error that concerns one tensor goes into its outcome, and no further.
  virtual Status run(const Work& work) = 0;

  OutputMemory outputs_;
  FusionBuffer buffer_;

 private:
  bool reduces(const Response& response, const Group& group) const {
    if (kind_ != Kind::allreduce && kind_ != Kind::reducescatter) return true;
    const BatchArithmetic arithmetic(response.request(), group.size());
    return arithmetic.op != ReduceOp::adasum &&
           world_->library().reduces(arithmetic.wire, arithmetic.op);
  }

  Kind kind_;
  std::string name_;
  std::shared_ptr<LibraryWorld> world_;
};

class LibraryAllreduce final : public LibraryOperation {
 public:
  explicit LibraryAllreduce(const std::shared_ptr<LibraryWorld>& world)
      : LibraryOperation(Kind::allreduce, world) {}

 private:
  struct Tensor {
    const void* input;
    std::byte* output;
    std::size_t elements;
    bool packed;
  };

  Status run(const Work& work) override {
    const BatchArithmetic arithmetic(work.response.request(), work.group.size());
    tensors_.clear();
    std::size_t packed = 0;
    for (std::size_t i = 0; i < work.entries.size(); ++i) {
      Entry& entry = work.entries[i];
      const auto elements = static_cast<std::size_t>(entry.request.elements());
      const bool is_small =
          work.entries.size() > 1 && entry.request.bytes() <= library().packed_bytes();
      const bool is_packed = arithmetic.compressed() || is_small;
      tensors_.push_back({entry.input,
                          outputs_.prepare(entry, entry.request.shape, work.outcomes[i]), elements,
                          is_packed});
      if (is_packed) packed += elements;
    }
    for (const auto& tensor : tensors_) {
      if (tensor.packed || tensor.elements == 0) continue;
      const void* input = tensor.input;
      if (arithmetic.prescale != 1.0) {
        arithmetic.pack(input, tensor.output, tensor.elements);
        input = tensor.output;
      }
      HVD_RETURN_IF_ERROR(reduce(work, arithmetic, input, tensor.output, tensor.elements));
    }
    return packed == 0 ? Status() : reduce_packed(work, arithmetic, packed);
  }

  Status reduce_packed(const Work& work, const BatchArithmetic& arithmetic, std::size_t elements) {
    const std::size_t element = size_of(arithmetic.wire);
    std::byte* const buffer = buffer_.reserve(elements * element);
    std::byte* at = buffer;
    ActivityScope packing(Activity::memcpy_in_fusion_buffer);
    for (const auto& tensor : tensors_) {
      if (!tensor.packed) continue;
      arithmetic.pack(tensor.input, at, tensor.elements);
      at += tensor.elements * element;
    }
    packing.end();
    HVD_RETURN_IF_ERROR(reduce(work, arithmetic, buffer, buffer, elements));
    const ActivityScope unpacking(Activity::memcpy_out_fusion_buffer);
    at = buffer;
    for (const auto& tensor : tensors_) {
      if (!tensor.packed) continue;
      arithmetic.unpack(at, tensor.output, tensor.elements);
      at += tensor.elements * element;
    }
    return {};
  }

  static Status reduce(const Work& work, const BatchArithmetic& arithmetic, const void* from,
                       void* to, std::size_t elements) {
    HVD_RETURN_IF_ERROR(
        work.communicator.allreduce(from, to, elements, arithmetic.wire, arithmetic.op));
    if (arithmetic.changes_sums()) arithmetic.finish(to, elements);
    return {};
  }

  std::vector<Tensor> tensors_;
};

class LibraryReducescatter final : public LibraryOperation {
 public:
  explicit LibraryReducescatter(const std::shared_ptr<LibraryWorld>& world)
      : LibraryOperation(Kind::reducescatter, world) {}

 private:
  // Packs all inputs, since the library needs memory for the sums of other members' rows: a block
  // for each member, with its rows of all tensors.
  Status run(const Work& work) override {
    const BatchArithmetic arithmetic(work.response.request(), work.group.size());
    const std::size_t element = size_of(arithmetic.wire);
    const std::vector<int> sizes = block_sizes(work);
    const std::size_t elements = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
    std::byte* const buffer = buffer_.reserve(elements * element);
    std::byte* block = buffer;
    ActivityScope packing(Activity::memcpy_in_fusion_buffer);
    for (int rank = 0; rank < work.group.size(); ++rank) {
      std::byte* at = block;
      block += static_cast<std::size_t>(sizes[static_cast<std::size_t>(rank)]) * element;
      for (const auto& entry : work.entries) {
        const auto [begin, count] =
            reducescatter_rows(rows(entry.request), work.group.size(), rank);
        const std::size_t size = elements_of(entry, count);
        arithmetic.pack(static_cast<const std::byte*>(entry.input) +
                            static_cast<std::size_t>(begin) * row_bytes(entry.request),
                        at, size);
        at += size * element;
      }
      if (at != block) std::memset(at, 0, static_cast<std::size_t>(block - at));
    }
    packing.end();
    HVD_RETURN_IF_ERROR(
        work.communicator.reduce_scatter(buffer, sizes, arithmetic.wire, arithmetic.op));
    if (arithmetic.changes_sums()) {
      arithmetic.finish(buffer, static_cast<std::size_t>(sizes[work.own()]));
    }
    const std::byte* at = buffer;
    for (std::size_t i = 0; i < work.entries.size(); ++i) {
      Entry& entry = work.entries[i];
      const auto count =
          reducescatter_rows(rows(entry.request), work.group.size(), work.group.rank).count;
      std::byte* const output =
          outputs_.prepare(entry, with_rows(entry.request.shape, count), work.outcomes[i]);
      const ActivityScope unpacking(Activity::memcpy_out_fusion_buffer);
      arithmetic.unpack(at, output, elements_of(entry, count));
      at += elements_of(entry, count) * element;
    }
    return {};
  }

  // Where the library wants parts of one size, shorter ones are filled up.
  std::vector<int> block_sizes(const Work& work) const {
    std::vector<int> sizes(work.size());
    for (int rank = 0; rank < work.group.size(); ++rank) {
      for (const auto& entry : work.entries) {
        const auto count = reducescatter_rows(rows(entry.request), work.group.size(), rank).count;
        sizes[static_cast<std::size_t>(rank)] += static_cast<int>(elements_of(entry, count));
      }
    }
    if (library().wants_equal_parts()) {
      std::fill(sizes.begin(), sizes.end(), *std::max_element(sizes.begin(), sizes.end()));
    }
    return sizes;
  }

  static std::size_t elements_of(const Entry& entry, std::int64_t rows) {
    return static_cast<std::size_t>(rows) * row_bytes(entry.request) / size_of(entry.request.type);
  }
};

class LibraryAllgather final : public LibraryOperation {
 public:
  explicit LibraryAllgather(const std::shared_ptr<LibraryWorld>& world)
      : LibraryOperation(Kind::allgather, world) {}

 private:
  // One tensor is gathered where it belongs, several in the buffer: a block for each member, with
  // its rows of all tensors.
  Status run(const Work& work) override {
    const std::size_t tensors = work.entries.size();
    std::vector<std::byte*> outputs;
    std::vector<int> sizes(work.size());
    for (std::size_t i = 0; i < tensors; ++i) {
      std::int64_t all_rows = 0;
      for (std::size_t rank = 0; rank < work.size(); ++rank) {
        all_rows += work.response.tensors[i]->first_extents[rank];
        sizes[rank] += static_cast<int>(bytes_from(work, i, rank));
      }
      Entry& entry = work.entries[i];
      outputs.push_back(
          outputs_.prepare(entry, with_rows(entry.request.shape, all_rows), work.outcomes[i]));
    }
    const auto total = static_cast<std::size_t>(std::accumulate(sizes.begin(), sizes.end(), 0));
    const auto before = static_cast<std::size_t>(
        std::accumulate(sizes.begin(), sizes.begin() + work.group.rank, 0));
    std::byte* const gathered = tensors == 1 ? outputs.front() : buffer_.reserve(total);
    std::byte* at = gathered + before;
    ActivityScope packing(Activity::memcpy_in_fusion_buffer, tensors > 1);
    for (std::size_t i = 0; i < tensors; ++i) {
      const std::size_t bytes = bytes_from(work, i, work.own());
      if (bytes > 0) std::memmove(at, work.entries[i].input, bytes);
      at += bytes;
    }
    packing.end();
    HVD_RETURN_IF_ERROR(work.communicator.allgather(gathered, sizes));
    if (tensors == 1) return {};
    const ActivityScope unpacking(Activity::memcpy_out_fusion_buffer);
    at = gathered;
    for (std::size_t rank = 0; rank < work.size(); ++rank) {
      for (std::size_t i = 0; i < tensors; ++i) {
        const std::size_t bytes = bytes_from(work, i, rank);
        if (bytes > 0) bulk_copy(outputs[i], at, bytes);
        outputs[i] += bytes;
        at += bytes;
      }
    }
    return {};
  }

  static std::size_t bytes_from(const Work& work, std::size_t tensor, std::size_t rank) {
    const auto count = work.response.tensors[tensor]->first_extents[rank];
    return static_cast<std::size_t>(count) * row_bytes(work.entries[tensor].request);
  }
};

class LibraryBroadcast final : public LibraryOperation {
 public:
  explicit LibraryBroadcast(const std::shared_ptr<LibraryWorld>& world)
      : LibraryOperation(Kind::broadcast, world) {}

 private:
  Status run(const Work& work) override {
    for (std::size_t i = 0; i < work.entries.size(); ++i) {
      Entry& entry = work.entries[i];
      std::byte* const output = outputs_.prepare(entry, entry.request.shape, work.outcomes[i]);
      const auto& ranks = work.group.ranks;
      const auto root = std::find(ranks.begin(), ranks.end(), entry.request.root) - ranks.begin();
      const std::size_t bytes = entry.request.bytes();
      if (root == work.group.rank && output != entry.input && bytes > 0) {
        bulk_copy(output, entry.input, bytes);
      }
      HVD_RETURN_IF_ERROR(work.communicator.broadcast(output, bytes, static_cast<int>(root)));
    }
    return {};
  }
};

class LibraryAlltoall final : public LibraryOperation {
 public:
  explicit LibraryAlltoall(const std::shared_ptr<LibraryWorld>& world)
      : LibraryOperation(Kind::alltoall, world) {}

 private:
  Status run(const Work& work) override {
    for (std::size_t i = 0; i < work.entries.size(); ++i) {
      HVD_RETURN_IF_ERROR(run_one(work, work.response.tensors[i]->first_extents, work.entries[i],
                                  work.outcomes[i]));
    }
    return {};
  }

  Status run_one(const Work& work, const std::vector<std::int64_t>& extents, Entry& entry,
                 Outcome& outcome) {
    const int set_size = work.group.size();
    const std::size_t words = split_words(set_size);
    std::vector<std::int64_t> matrix(work.size() * words);
    const auto splits_of = [&](std::size_t rank) {
      return std::span<const std::int64_t>(&matrix[rank * words], words);
    };
    const auto own_splits = encode_splits(entry, set_size);
    std::copy(own_splits.begin(), own_splits.end(), &matrix[work.own() * words]);
    const std::vector<int> sizes(work.size(), static_cast<int>(words * sizeof(std::int64_t)));
    HVD_RETURN_IF_ERROR(work.communicator.allgather(matrix.data(), sizes));
    // Each member sees all splits, so that all come to the same verdict before anything is sent.
    for (std::size_t rank = 0; rank < work.size(); ++rank) {
      outcome.failure = check_splits(entry.request, splits_of(rank), work.group.ranks[rank],
                                     extents[rank], set_size);
      if (!outcome.ok()) return {};
    }

    const std::size_t row = row_bytes(entry.request);
    std::vector<int> sent;
    std::vector<int> received;
    std::vector<std::int64_t> received_splits;
    std::int64_t all_rows = 0;
    for (std::size_t rank = 0; rank < work.size(); ++rank) {
      const auto there =
          split_for(splits_of(work.own()), static_cast<int>(rank), extents[work.own()], set_size);
      const auto here = split_for(splits_of(rank), work.group.rank, extents[rank], set_size);
      sent.push_back(static_cast<int>(static_cast<std::size_t>(there) * row));
      received.push_back(static_cast<int>(static_cast<std::size_t>(here) * row));
      received_splits.push_back(here);
      all_rows += here;
    }
    std::byte* const output =
        outputs_.prepare(entry, with_rows(entry.request.shape, all_rows), outcome);
    const void* input = entry.input;
    const std::size_t bytes = entry.request.bytes();
    if (overlap(input, bytes, output, static_cast<std::size_t>(all_rows) * row)) {
      input = std::memcpy(buffer_.reserve(bytes), input, bytes);
    }
    outcome.received_splits = std::move(received_splits);
    return work.communicator.alltoall(input, sent, output, received);
  }
};

}  // namespace

std::vector<std::unique_ptr<Operation>> make_library_operations(
    const std::shared_ptr<LibraryWorld>& world) {
  std::vector<std::unique_ptr<Operation>> operations;
  operations.push_back(std::make_unique<LibraryAllreduce>(world));
  operations.push_back(std::make_unique<LibraryAllgather>(world));
  operations.push_back(std::make_unique<LibraryBroadcast>(world));
  operations.push_back(std::make_unique<LibraryAlltoall>(world));
  operations.push_back(std::make_unique<LibraryReducescatter>(world));
  return operations;
}

}  // namespace hvd::runtime
