// allreduce and reducescatter.
#include <array>
#include <functional>
#include <optional>

#include "base/machine/bulk_copy.h"
#include "base/text.h"
#include "runtime/core/batch_arithmetic.h"
#include "runtime/core/reduce_in_order.h"
#include "runtime/ops/fusion_buffer.h"
#include "runtime/ops/shm_in_place_allreduce.h"
#include "runtime/ops/shm_operation.h"

namespace hvd::runtime {
namespace {

// The results of a sum along a tree are in other memory than its leaves, which no cache holds
// beside so many bytes: they are stored past the caches. With two ranks and 102 MB that takes as
// long as in place, and cached stores 1.25 times as long.
constexpr std::size_t kStreamedBytes = std::size_t{4} << 20;

// Reduces, in the current chunks of a collective's ranks, what all of them packed. Where it adds
// along a tree, the leaves of a rank are behind each other in its chunk.
class ChunkReduction {
 public:
  ChunkReduction(const ShmCollective& collective, const BatchArithmetic& arithmetic,
                 const SumTree* tree = nullptr)
      : collective_(collective),
        arithmetic_(arithmetic),
        element_(size_of(arithmetic.wire)),
        reduce_(reduce_function(arithmetic.wire, arithmetic.op)),
        tree_(tree) {
    if (tree == nullptr) return;
    adder_.emplace(*tree, reduce_, element_);
    places_.resize(tree->leaves().size());
  }

  std::size_t element() const { return element_; }
  std::size_t block() const { return kReducedAtOnce / element_; }
  // The most leaves of one rank, each with as many elements as the tensor.
  std::size_t slots() const {
    return tree_ == nullptr ? 1 : static_cast<std::size_t>(tree_->slots());
  }
  // So many elements of each leaf are in a chunk.
  void set_step(std::size_t elements) { step_ = elements; }
  std::size_t step() const { return step_; }

  // `count` elements, at most a block(), from `at` on. Into `out`, which may be where they lie in
  // one of the chunks.
  void block_into(std::byte* out, std::size_t at, std::size_t count) {
    if (tree_ == nullptr) {
      const auto elements_of = [&](int rank) { return collective_.chunk(rank) + at * element_; };
      reduce_in_order(reduce_, collective_.size(), elements_of, out, count);
    } else {
      for (std::size_t leaf = 0; leaf < places_.size(); ++leaf) {
        const auto [rank, slot] = tree_->leaves()[leaf];
        places_[leaf] = collective_.chunk(rank) + static_cast<std::size_t>(slot) * step_ * element_;
      }
      adder_->add_up(places_, at, count, out);
    }
    if (arithmetic_.changes_sums()) arithmetic_.finish(out, count);
  }

  // The same for any number of elements, straight to where they belong: to[from + i] is element
  // at + i.
  void unpack_into(const Outputs& to, std::size_t from, std::size_t at, std::size_t count) {
    alignas(64) std::array<std::byte, kReducedAtOnce>
        sum;  // NOLINT: it is written before it is read
    for (std::size_t done = 0; done < count; done += block()) {
      const std::size_t n = std::min(block(), count - done);
      block_into(sum.data(), at + done, n);
      unpack(sum.data(), to, from + done, n);
    }
  }

  void pack(CopyFunction copy, const Inputs& from, std::size_t begin, std::size_t count,
            std::byte* to) const {
    from.for_range(begin, begin + count,
                   [&](const std::byte* data, std::size_t before, std::size_t at, std::size_t n) {
                     pack_piece(copy, data + before * size_of(arithmetic_.type), n,
                                to + at * element_);
                   });
  }
  void unpack(const std::byte* from, const Outputs& to, std::size_t begin,
              std::size_t count) const {
    const bool streams = tree_ != nullptr && to.size() * element_ >= kStreamedBytes;
    to.for_range(begin, begin + count,
                 [&](std::byte* data, std::size_t before, std::size_t at, std::size_t n) {
                   if (streams) {
                     stream_copy(data + before * element_, from + at * element_, n * element_);
                   } else {
                     arithmetic_.unpack(from + at * element_,
                                        data + before * size_of(arithmetic_.type), n);
                   }
                 });
    if (streams) finish_stream_copies();
  }

 private:
  // With cached stores, elements that are computed on the way in are stored by the computation
  // itself; otherwise they are copied from the cache.
  void pack_piece(CopyFunction copy, const std::byte* from, std::size_t count,
                  std::byte* to) const {
    if (arithmetic_.only_copies()) return copy(to, from, count * element_);
    if (copy == bulk_copy) return arithmetic_.pack(from, to, count);
    alignas(64) std::array<std::byte, kReducedAtOnce>
        packed;  // NOLINT: it is written before it is read
    for (std::size_t done = 0; done < count; done += block()) {
      const std::size_t n = std::min(block(), count - done);
      arithmetic_.pack(from + done * size_of(arithmetic_.type), packed.data(), n);
      copy(to + done * element_, packed.data(), n * element_);
    }
  }

  const ShmCollective& collective_;
  const BatchArithmetic& arithmetic_;
  std::size_t element_;
  ReduceFunction reduce_;
  const SumTree* tree_;
  std::optional<TreeAdder> adder_;
  std::vector<const std::byte*> places_;  // of the leaves
  std::size_t step_ = 0;
};

class ShmAllreduce final : public ShmOperation {
 public:
  ShmAllreduce(const std::shared_ptr<ShmGroup>& host, const ShmOperationOptions& options)
      : ShmOperation(Kind::allreduce, "shared-memory allreduce", host), options_(options) {}

 private:
  Status run(const Work& work, ShmCollective& collective) override {
    const BatchArithmetic arithmetic(work.entries.front(), work.active.size());
    const auto* const leaves = work.entries.front().leaves.get();
    const SumTree* const tree = leaves == nullptr ? nullptr : leaves->tree.get();
    inputs_.resize(leaves == nullptr ? 1 : leaves->leaves.size());
    for (auto& slot : inputs_) slot.clear();
    outputs_.clear();
    for (std::size_t i = 0; i < work.entries.size(); ++i) {
      Entry& entry = work.entries[i];
      const auto count = static_cast<std::size_t>(entry.request.elements());
      for (std::size_t slot = 0; slot < inputs_.size(); ++slot) {
        const void* const input =
            entry.leaves == nullptr ? entry.input : entry.leaves->leaves[slot];
        inputs_[slot].add(static_cast<const std::byte*>(input), count);
      }
      outputs_.add(prepare_output(entry, entry.request.shape, work.outcomes[i]), count);
    }
    if (outputs_.size() == 0) return {};
    ChunkReduction reduction(collective, arithmetic, tree);
    const std::size_t bytes = outputs_.size() * reduction.element() * reduction.slots();
    HVD_RETURN_IF_ERROR(collective.open());
    if (collective.size() <= options_.direct_ranks &&
        bytes <= std::min(options_.direct_bytes, collective.capacity())) {
      return by_everybody(reduction, collective);
    }
    if (tree != nullptr) {
      const std::size_t step = step_of(reduction, collective);
      if (step == 0) {
        return {Code::internal, cat("the memory of the host has no room for ", reduction.slots(),
                                    " leaves of a rank")};
      }
      reduction.set_step(step);
      fill_first_chunk(reduction, collective);
      HVD_RETURN_IF_ERROR(collective.sync());
      return by_shares(reduction, collective);
    }
    ShmInPlaceAllreduce in_place(collective, arithmetic);
    const bool offers = in_place.offer(work.entries, work.outcomes);
    collective.tell_in_heap(offers);
    if (!offers) fill_first_chunk(reduction, collective);
    HVD_RETURN_IF_ERROR(collective.sync());
    const int offered = collective.ranks_in_heap();
    if (offered == collective.size()) return in_place.run(work.entries, work.outcomes);
    if (offers) fill_first_chunk(reduction, collective);
    if (offered > 0) HVD_RETURN_IF_ERROR(collective.sync());
    return by_shares(reduction, collective);
  }

  Status by_everybody(ChunkReduction& reduction, ShmCollective& collective) {
    reduction.set_step(outputs_.size());
    fill_window(reduction, collective, 0, outputs_.size());
    HVD_RETURN_IF_ERROR(collective.sync());
    reduction.unpack_into(outputs_, 0, 0, outputs_.size());
    collective.next_chunk();
    return {};
  }

  // So many elements of the batch are in each chunk; 0: there is no room for one.
  std::size_t step_of(const ChunkReduction& reduction, const ShmCollective& collective) const {
    std::size_t room = collective.capacity() / reduction.element() / reduction.slots();
    if (room < kReduceGrain) return room;
    room = room / kReduceGrain * kReduceGrain;
    const std::size_t chunks = (outputs_.size() + room - 1) / room;
    return whole_grains((outputs_.size() + chunks - 1) / chunks);
  }

  void fill_first_chunk(const ChunkReduction& reduction, const ShmCollective& collective) const {
    const std::size_t count = std::min(step_of(reduction, collective), outputs_.size());
    fill_window(reduction, collective, 0, count);
  }

  // All ranks have filled their first chunk.
  Status by_shares(ChunkReduction& reduction, ShmCollective& collective) {
    const std::size_t total = outputs_.size();
    const std::size_t step = step_of(reduction, collective);
    const auto count_at = [&](std::size_t begin) { return std::min(step, total - begin); };
    for (std::size_t begin = 0; begin < total; begin += step) {
      const std::size_t count = count_at(begin);
      reduce_own_share(reduction, collective, count);
      const std::size_t next = begin + step;
      if (next < total) fill_window(reduction, collective, next, count_at(next), 1);
      HVD_RETURN_IF_ERROR(collective.sync());
      for (int rank = 0; rank < collective.size(); ++rank) {
        const auto [from, to] = share_of(collective, rank, count);
        reduction.unpack(collective.chunk(rank) + from * reduction.element(), outputs_,
                         begin + from, to - from);
      }
      collective.next_chunk();
    }
    return {};
  }

  void fill_window(const ChunkReduction& reduction, const ShmCollective& collective,
                   std::size_t begin, std::size_t count, std::size_t ahead = 0) const {
    const std::size_t each = count * reduction.element();
    collective.writer().write(inputs_.size() * each, [&](CopyFunction copy) {
      std::byte* to = collective.chunk(collective.rank(), ahead);
      for (const auto& slot : inputs_) {
        reduction.pack(copy, slot, begin, count, to);
        to += reduction.step() * reduction.element();
      }
    });
  }

  // Where no other rank reads what it packed.
  static void reduce_own_share(ChunkReduction& reduction, const ShmCollective& collective,
                               std::size_t count) {
    const auto [begin, end] = share_of(collective, collective.rank(), count);
    for (std::size_t at = begin; at < end; at += reduction.block()) {
      reduction.block_into(collective.chunk(collective.rank()) + at * reduction.element(), at,
                           std::min(reduction.block(), end - at));
    }
  }

  ShmOperationOptions options_;
  std::vector<Inputs> inputs_;  // one, or the leaves
  Outputs outputs_;
};

class ShmReducescatter final : public ShmOperation {
 public:
  explicit ShmReducescatter(const std::shared_ptr<ShmGroup>& host)
      : ShmOperation(Kind::reducescatter, "shared-memory reducescatter", host) {}

 private:
  // A block for each rank, with its rows of all tensors; every chunk has a part of each block.
  Status run(const Work& work, ShmCollective& collective) override {
    const BatchArithmetic arithmetic(work.response.tensors.front()->request, work.active.size());
    ChunkReduction reduction(collective, arithmetic);
    const auto ranks = static_cast<std::size_t>(collective.size());
    blocks_.resize(ranks);
    for (auto& block : blocks_) block.clear();
    own_.clear();
    bool overlaps = false;
    std::size_t elements = 0;
    for (std::size_t i = 0; i < work.entries.size(); ++i) {
      Entry& entry = work.entries[i];
      const std::size_t row = row_bytes(entry.request) / size_of(entry.request.type);
      const auto* const input = static_cast<const std::byte*>(entry.input);
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        const auto [begin, count] = rows_of(work, entry, work.active.positions[rank]);
        blocks_[rank].add(input + static_cast<std::size_t>(begin) * row_bytes(entry.request),
                          static_cast<std::size_t>(count) * row);
      }
      const auto count = rows_of(work, entry, work.group.rank).count;
      std::byte* const output =
          prepare_output(entry, with_rows(entry.request.shape, count), work.outcomes[i]);
      own_.add(output, static_cast<std::size_t>(count) * row);
      const std::size_t output_bytes = static_cast<std::size_t>(count) * row_bytes(entry.request);
      overlaps = overlaps || overlap(input, entry.request.bytes(), output, output_bytes);
      elements += static_cast<std::size_t>(entry.request.elements());
    }
    if (elements == 0) return {};
    HVD_RETURN_IF_ERROR(collective.open());
    return in_windows(reduction, collective, overlaps);
  }

  Status in_windows(ChunkReduction& reduction, ShmCollective& collective, bool overlaps) {
    std::size_t longest = 0;
    for (const auto& block : blocks_) longest = std::max(longest, block.size());
    const auto ranks = static_cast<std::size_t>(collective.size());
    const std::size_t most = collective.capacity() / reduction.element() / ranks;
    const std::size_t step = most > kReduceGrain ? most / kReduceGrain * kReduceGrain : most;
    // Where rows are written that are yet to be packed, all are packed first.
    const bool aside = overlaps && longest > step;
    if (aside) keep_inputs(reduction);
    for (std::size_t begin = 0; begin < longest; begin += step) {
      const std::size_t elements = count_from(blocks_, begin, step);
      collective.writer().write(elements * reduction.element(), [&](CopyFunction copy) {
        std::byte* to = collective.chunk(collective.rank());
        std::size_t kept = 0;
        for (const auto& block : blocks_) {
          const std::size_t count = block.count_from(begin, step);
          if (aside) {
            const std::byte* const from = kept_ + (kept + begin) * reduction.element();
            if (count > 0) copy(to, from, count * reduction.element());
            kept += block.size();
          } else {
            reduction.pack(copy, block, begin, count, to);
          }
          to += step * reduction.element();
        }
      });
      HVD_RETURN_IF_ERROR(collective.sync());
      if (begin < own_.size()) {
        reduction.unpack_into(own_, begin, collective.index() * step,
                              std::min(step, own_.size() - begin));
      }
      collective.next_chunk();
    }
    return {};
  }

  void keep_inputs(const ChunkReduction& reduction) {
    std::size_t elements = 0;
    for (const auto& block : blocks_) elements += block.size();
    kept_ = buffer_.reserve(elements * reduction.element());
    std::byte* to = kept_;
    for (const auto& block : blocks_) {
      reduction.pack(bulk_copy, block, 0, block.size(), to);
      to += block.size() * reduction.element();
    }
  }

  static Rows rows_of(const Work& work, const Entry& entry, int position) {
    return reducescatter_rows(rows(entry.request), work.group.size(), position);
  }
  static bool overlap(const std::byte* a, std::size_t a_bytes, const std::byte* b,
                      std::size_t b_bytes) {
    const std::less<const std::byte*> before;
    return a != nullptr && b != nullptr && before(a, b + b_bytes) && before(b, a + a_bytes);
  }

  std::vector<Inputs> blocks_;
  Outputs own_;
  FusionBuffer buffer_;
  std::byte* kept_ = nullptr;
};

}  // namespace

std::unique_ptr<Operation> make_shm_allreduce(const std::shared_ptr<ShmGroup>& host,
                                              const ShmOperationOptions& options) {
  return std::make_unique<ShmAllreduce>(host, options);
}

std::unique_ptr<Operation> make_shm_reducescatter(const std::shared_ptr<ShmGroup>& host) {
  return std::make_unique<ShmReducescatter>(host);
}

}  // namespace hvd::runtime
