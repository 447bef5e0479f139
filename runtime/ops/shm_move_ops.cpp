// allgather, alltoall, broadcast and barrier: nothing is computed.
#include <cstring>
#include <functional>

#include "base/machine/bulk_copy.h"
#include "runtime/ops/fusion_buffer.h"
#include "runtime/ops/shm_operation.h"

namespace hvd::runtime {
namespace {

void pack(CopyFunction copy, const Inputs& from, std::size_t begin, std::size_t bytes,
          std::byte* to) {
  from.for_range(begin, begin + bytes,
                 [&](const std::byte* data, std::size_t before, std::size_t at, std::size_t n) {
                   copy(to + at, data + before, n);
                 });
}

void unpack(const std::byte* from, const Outputs& to, std::size_t begin, std::size_t bytes) {
  to.for_range(begin, begin + bytes,
               [&](std::byte* data, std::size_t before, std::size_t at, std::size_t n) {
                 bulk_copy(data + before, from + at, n);
               });
}

class ShmAllgather final : public ShmOperation {
 public:
  explicit ShmAllgather(const std::shared_ptr<ShmGroup>& host)
      : ShmOperation(Kind::allgather, "shared-memory allgather", host) {}

 private:
  Status run(const Work& work, ShmCollective& collective) override {
    const auto ranks = static_cast<std::size_t>(collective.size());
    from_.resize(ranks);
    for (auto& list : from_) list.clear();
    own_.clear();
    for (std::size_t i = 0; i < work.entries.size(); ++i) {
      add(work, collective, work.response.tensors[i]->first_extents, work.entries[i],
          work.outcomes[i]);
    }
    std::size_t longest = 0;
    for (const auto& list : from_) longest = std::max(longest, list.size());
    if (longest == 0) return {};
    HVD_RETURN_IF_ERROR(collective.open());
    const std::size_t step = collective.capacity();
    for (std::size_t begin = 0; begin < longest; begin += step) {
      collective.writer().write(own_.count_from(begin, step), [&](CopyFunction copy) {
        pack(copy, own_, begin, step, collective.chunk(collective.rank()));
      });
      HVD_RETURN_IF_ERROR(collective.sync());
      for (int other = 1; other < collective.size(); ++other) {
        // Each begins with another one, so that not all read the same memory.
        const int rank = (collective.rank() + other) % collective.size();
        unpack(collective.chunk(rank), from_[static_cast<std::size_t>(rank)], begin, step);
      }
      collective.next_chunk();
    }
    return {};
  }

  // The own rows go where they belong before anything arrives beside them, and are packed from
  // there.
  void add(const Work& work, const ShmCollective& collective,
           const std::vector<std::int64_t>& extents, Entry& entry, Outcome& outcome) {
    const std::size_t row = row_bytes(entry.request);
    std::vector<std::size_t> bytes;
    std::int64_t all_rows = 0;
    for (const int position : work.active.positions) {
      const auto count = extents[static_cast<std::size_t>(position)];
      all_rows += count;
      bytes.push_back(static_cast<std::size_t>(count) * row);
    }
    std::byte* at = prepare_output(entry, with_rows(entry.request.shape, all_rows), outcome);
    for (std::size_t rank = 0; rank < bytes.size(); ++rank) {
      if (rank == collective.index()) {
        const auto* const input = static_cast<const std::byte*>(entry.input);
        if (at != nullptr && bytes[rank] > 0) std::memmove(at, input, bytes[rank]);
        own_.add(at != nullptr ? at : input, bytes[rank]);
      }
      from_[rank].add(at, bytes[rank]);
      if (at != nullptr) at += bytes[rank];
    }
  }

  std::vector<Outputs> from_;  // of each rank, all tensors
  Inputs own_;
};

class ShmAlltoall final : public ShmOperation {
 public:
  explicit ShmAlltoall(const std::shared_ptr<ShmGroup>& host)
      : ShmOperation(Kind::alltoall, "shared-memory alltoall", host) {}

 private:
  // Rows of one tensor, as all ranks see them.
  struct Splits {
    std::vector<std::vector<std::int64_t>> words;  // of each active rank
    std::vector<std::int64_t> extents;             // the same
    int set_size;
    std::int64_t rows(std::size_t from, int to_position) const {
      return split_for(words[from], to_position, extents[from], set_size);
    }
  };

  Status run(const Work& work, ShmCollective& collective) override {
    for (std::size_t i = 0; i < work.entries.size(); ++i) {
      HVD_RETURN_IF_ERROR(run_one(work, collective, i));
    }
    return {};
  }

  Status run_one(const Work& work, ShmCollective& collective, std::size_t i) {
    Entry& entry = work.entries[i];
    Splits splits{{}, {}, work.group.size()};
    for (const int position : work.active.positions) {
      splits.extents.push_back(
          work.response.tensors[i]->first_extents[static_cast<std::size_t>(position)]);
    }
    HVD_RETURN_IF_ERROR(exchange_splits(entry, collective, splits));
    // Each rank sees all splits, so that all come to the same verdict before anything moves.
    for (std::size_t rank = 0; rank < splits.words.size(); ++rank) {
      const Status right = check_splits(entry.request, splits.words[rank], work.active.ranks[rank],
                                        splits.extents[rank], splits.set_size);
      if (right.ok()) continue;
      work.outcomes[i].failure = right;
      return {};
    }
    return move_rows(work, collective, splits, entry, work.outcomes[i]);
  }

  static Status exchange_splits(const Entry& entry, ShmCollective& collective, Splits& splits) {
    const auto own = encode_splits(entry, splits.set_size);
    const std::size_t bytes = own.size() * sizeof(std::int64_t);
    HVD_RETURN_IF_ERROR(collective.open());
    if (bytes > collective.capacity()) {
      return {Code::resource_exhausted, "there is no room for the splits of so many ranks"};
    }
    std::memcpy(collective.chunk(collective.rank()), own.data(), bytes);
    HVD_RETURN_IF_ERROR(collective.sync());
    for (int rank = 0; rank < collective.size(); ++rank) {
      splits.words.emplace_back(own.size());
      std::memcpy(splits.words.back().data(), collective.chunk(rank), bytes);
    }
    collective.next_chunk();
    return {};
  }

  Status move_rows(const Work& work, ShmCollective& collective, const Splits& splits, Entry& entry,
                   Outcome& outcome) {
    const std::size_t row = row_bytes(entry.request);
    const auto bytes_of = [&](std::size_t from, int to_position) {
      return static_cast<std::size_t>(splits.rows(from, to_position)) * row;
    };
    std::vector<std::int64_t> received(static_cast<std::size_t>(splits.set_size));
    std::int64_t all_rows = 0;
    std::size_t longest = 0;  // from any rank to any
    for (std::size_t from = 0; from < splits.words.size(); ++from) {
      const auto count = splits.rows(from, work.group.rank);
      received[static_cast<std::size_t>(work.active.positions[from])] = count;
      all_rows += count;
      for (const int to : work.active.positions) longest = std::max(longest, bytes_of(from, to));
    }
    std::byte* output = prepare_output(entry, with_rows(entry.request.shape, all_rows), outcome);
    const std::byte* const input =
        input_of(entry, output, static_cast<std::size_t>(all_rows) * row);
    std::vector<Inputs> to(splits.words.size());
    std::vector<Outputs> from(splits.words.size());
    std::size_t offset = 0;
    std::size_t next = 0;  // of the active ranks
    for (int position = 0; position < splits.set_size; ++position) {
      const std::size_t bytes = bytes_of(collective.index(), position);
      // Rows for ranks that have joined are dropped.
      if (next < to.size() && work.active.positions[next] == position) {
        to[next++].add(input + offset, bytes);
      }
      offset += bytes;
    }
    for (std::size_t rank = 0; rank < from.size(); ++rank) {
      const std::size_t bytes = bytes_of(rank, work.group.rank);
      from[rank].add(output, bytes);
      if (output != nullptr) output += bytes;
    }
    HVD_RETURN_IF_ERROR(exchange(collective, to, from, longest));
    if (outcome.ok()) outcome.received_splits = std::move(received);
    return {};
  }

  static Status exchange(ShmCollective& collective, const std::vector<Inputs>& to,
                         const std::vector<Outputs>& from, std::size_t longest) {
    if (longest == 0) return {};
    HVD_RETURN_IF_ERROR(collective.open());
    const std::size_t step = collective.capacity() / to.size();
    for (std::size_t begin = 0; begin < longest; begin += step) {
      collective.writer().write(count_from(to, begin, step), [&](CopyFunction copy) {
        for (std::size_t rank = 0; rank < to.size(); ++rank) {
          pack(copy, to[rank], begin, step, collective.chunk(collective.rank()) + rank * step);
        }
      });
      HVD_RETURN_IF_ERROR(collective.sync());
      for (std::size_t rank = 0; rank < from.size(); ++rank) {
        unpack(collective.chunk(static_cast<int>(rank)) + collective.index() * step, from[rank],
               begin, step);
      }
      collective.next_chunk();
    }
    return {};
  }

  // The input, or a copy of it where the output would overwrite what is yet to be packed.
  const std::byte* input_of(const Entry& entry, const std::byte* output, std::size_t output_bytes) {
    const auto* const input = static_cast<const std::byte*>(entry.input);
    const std::size_t bytes = entry.request.bytes();
    const std::less<const std::byte*> before;
    if (output == nullptr || !before(input, output + output_bytes) ||
        !before(output, input + bytes)) {
      return input;
    }
    std::byte* const copy = buffer_.reserve(bytes);
    bulk_copy(copy, input, bytes);
    return copy;
  }

  FusionBuffer buffer_;
};

class ShmBroadcast final : public ShmOperation {
 public:
  explicit ShmBroadcast(const std::shared_ptr<ShmGroup>& host)
      : ShmOperation(Kind::broadcast, "shared-memory broadcast", host) {}

 private:
  Status run(const Work& work, ShmCollective& collective) override {
    for (std::size_t i = 0; i < work.entries.size(); ++i) {
      HVD_RETURN_IF_ERROR(run_one(work.active, collective, work.entries[i], work.outcomes[i]));
    }
    return {};
  }

  static Status run_one(const Active& active, ShmCollective& collective, Entry& entry,
                        Outcome& outcome) {
    const auto found = std::find(active.ranks.begin(), active.ranks.end(), entry.request.root);
    if (found == active.ranks.end()) {
      outcome.failure = root_has_joined(entry.request);
      return {};
    }
    const auto root = static_cast<int>(found - active.ranks.begin());
    std::byte* const output = prepare_output(entry, entry.request.shape, outcome);
    const auto* const input = static_cast<const std::byte*>(entry.input);
    const std::size_t bytes = entry.request.bytes();
    if (bytes == 0) return {};
    HVD_RETURN_IF_ERROR(collective.open());
    // The root fills the next chunk while the others empty this one.
    const std::size_t step = collective.capacity();
    for (std::size_t begin = 0; begin < bytes; begin += step) {
      const std::size_t count = std::min(step, bytes - begin);
      if (root == collective.rank()) {
        collective.writer().write(
            count, [&](CopyFunction copy) { copy(collective.chunk(root), input + begin, count); });
      }
      HVD_RETURN_IF_ERROR(collective.sync());
      if (root != collective.rank()) {
        if (output != nullptr) bulk_copy(output + begin, collective.chunk(root), count);
      }
      collective.next_chunk();
    }
    if (root == collective.rank() && output != nullptr && output != input) {
      std::memmove(output, input, bytes);
    }
    return {};
  }
};

class ShmBarrier final : public ShmOperation {
 public:
  explicit ShmBarrier(const std::shared_ptr<ShmGroup>& host)
      : ShmOperation(Kind::barrier, "shared-memory barrier", host) {}

 private:
  Status run(const Work& /*work*/, ShmCollective& collective) override { return collective.sync(); }
};

}  // namespace

std::unique_ptr<Operation> make_shm_allgather(const std::shared_ptr<ShmGroup>& host) {
  return std::make_unique<ShmAllgather>(host);
}

std::unique_ptr<Operation> make_shm_alltoall(const std::shared_ptr<ShmGroup>& host) {
  return std::make_unique<ShmAlltoall>(host);
}

std::unique_ptr<Operation> make_shm_broadcast(const std::shared_ptr<ShmGroup>& host) {
  return std::make_unique<ShmBroadcast>(host);
}

std::unique_ptr<Operation> make_shm_barrier(const std::shared_ptr<ShmGroup>& host) {
  return std::make_unique<ShmBarrier>(host);
}

}  // namespace hvd::runtime
