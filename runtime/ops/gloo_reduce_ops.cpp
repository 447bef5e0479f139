// allreduce and reducescatter.
#include <algorithm>
#include <deque>

#include "base/text.h"
#include "runtime/core/batch_arithmetic.h"
#include "runtime/ops/adasum.h"
#include "runtime/ops/algorithm_choice.h"
#include "runtime/ops/algorithms.h"
#include "runtime/ops/direct.h"
#include "runtime/ops/fusion_buffer.h"
#include "runtime/ops/gloo_operation.h"
#include "runtime/ops/halving.h"
#include "runtime/ops/hierarchy.h"
#include "runtime/ops/pieces.h"
#include "runtime/ops/ring.h"

namespace hvd::runtime {
namespace {

// `arithmetic` outlives it.
Reduction reduction_of(const BatchArithmetic& arithmetic) {
  Reduction reduction{
      reduce_function(arithmetic.wire, arithmetic.op), size_of(arithmetic.wire), {}};
  if (arithmetic.changes_sums()) {
    reduction.finish = [&arithmetic](void* data, std::size_t elements) {
      arithmetic.finish(data, elements);
    };
  }
  return reduction;
}

trace::Activity activity_of(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::doubling:
      return trace::Activity::doubling;
    case Algorithm::halving:
      return trace::Activity::halving;
    case Algorithm::direct:
      return trace::Activity::direct;
    case Algorithm::ring:
      return trace::Activity::ring;
  }
  return trace::Activity::ring;
}

// Adasum is no operation on pairs of elements.
bool refuse_adasum(const Request& request, std::span<Outcome> outcomes) {
  if (request.op != ReduceOp::adasum) return false;
  const bool can_be = request.kind == Kind::allreduce && is_floating_point(request.type);
  if (can_be) return false;
  for (auto& outcome : outcomes) {
    outcome.failure = Status(Code::invalid_argument,
                             cat("adasum is there for allreduce of floating point, not for ",
                                 kind_name(request.kind), " of ", type_name(request.type)));
  }
  return true;
}

class GlooAllreduce final : public GlooOperation {
 public:
  GlooAllreduce(const std::shared_ptr<Mesh>& mesh, const GlooOperationOptions& options)
      : GlooOperation(Kind::allreduce, "gloo allreduce", mesh, options) {}

 private:
  struct Tensor {
    const std::byte* input;
    std::byte* output;
    std::size_t elements;
  };

  void run(const Work& work, const Peers& peers) override {
    const Request& common = work.response.request();
    if (refuse_adasum(common, work.outcomes)) return;
    const BatchArithmetic arithmetic(work.entries.front(), work.active.size());
    tensors_.clear();
    std::size_t elements = 0;
    for (std::size_t i = 0; i < work.entries.size(); ++i) {
      Entry& entry = work.entries[i];
      const auto count = static_cast<std::size_t>(entry.request.elements());
      const bool has_leaf = entry.leaves && !entry.leaves->leaves.empty();
      const void* const input = has_leaf ? entry.leaves->leaves.front() : entry.input;
      tensors_.push_back({static_cast<const std::byte*>(input),
                          output_of(entry, entry.request.shape, work.outcomes[i]), count});
      elements += count;
    }
    if (elements == 0) return;
    const auto& leaves = work.entries.front().leaves;
    // Additions commute, so each allreduce adds up the tree of two ranks with a leaf each.
    if (leaves &&
        !(peers.size() == 2 && leaves->tree->leaves().size() == 2 && leaves->tree->slots() == 1)) {
      return along_tree(arithmetic, *leaves->tree, work, peers);
    }
    const auto node_peers = work.plan != nullptr ? mates_of(work, peers, scratch_) : nullptr;
    if (arithmetic.op == ReduceOp::adasum) {
      return through_buffer(arithmetic, elements, [&](std::byte* buffer) {
        std::vector<std::size_t> lengths;
        for (const auto& tensor : tensors_) lengths.push_back(tensor.elements);
        adasum_allreduce(peers, arithmetic.wire, buffer, lengths, scratch_);
        if (!arithmetic.compressed()) arithmetic.finish(buffer, elements);
      });
    }
    const std::size_t bytes = elements * size_of(arithmetic.wire);
    algorithm_ = choose(work, peers, bytes);
    trace::mark_choice(activity_of(algorithm_));
    if (algorithm_ == Algorithm::doubling) {
      through_buffer(arithmetic, elements, [&](std::byte* buffer) {
        const ReduceFunction reduce = reduce_function(arithmetic.wire, arithmetic.op);
        const std::size_t element = size_of(arithmetic.wire);
        if (node_peers) {
          leaders_allreduce(peers, *work.plan, *node_peers, buffer, elements, element, reduce,
                            scratch_);
        } else {
          between_hosts(work, bytes, [&] {
            doubling_allreduce(peers, buffer, elements, element, reduce, scratch_);
          });
        }
        if (!arithmetic.compressed()) arithmetic.finish(buffer, elements);
      });
    } else if (arithmetic.compressed()) {
      through_buffer(arithmetic, elements, [&](std::byte* buffer) {
        reduce_much(arithmetic, peers, work, node_peers.get(), {{buffer, buffer, bytes}});
      });
    } else {
      in_place(arithmetic, peers, work, node_peers.get());
    }
  }

  // Among several tensors a small one travels in the buffer.
  bool is_packed(const Tensor& tensor, std::size_t element) const {
    return tensors_.size() > 1 && tensor.elements * element <= options().packed_bytes;
  }
  std::size_t packed_bytes(std::size_t element) const {
    std::size_t packed = 0;
    for (const auto& tensor : tensors_) {
      if (is_packed(tensor, element)) packed += tensor.elements * element;
    }
    return packed;
  }

  // Each rank gets its block of all leaves, adds it up, and gives the sum to all.
  void along_tree(const BatchArithmetic& arithmetic, const SumTree& tree, const Work& work,
                  const Peers& peers) {
    trace::mark_choice(trace::Activity::direct);
    const std::size_t element = size_of(arithmetic.type);
    const std::size_t packed = packed_bytes(element);

    // Small tensors are packed, leaf for leaf, and their sums behind them.
    const std::size_t slots = work.entries.front().leaves->leaves.size();
    std::byte* at = buffer_.reserve((slots + 1) * packed);
    std::byte* const sums = at + slots * packed;
    std::vector<std::vector<Block>> leaves;  // by slot, then by rank
    for (std::size_t slot = 0; slot <= slots; ++slot) {
      const bool is_leaf = slot < slots;  // the last ones are the sums
      std::vector<Part> parts{{is_leaf ? at : nullptr, sums, packed}};
      for (std::size_t i = 0; i < tensors_.size(); ++i) {
        const Tensor& tensor = tensors_[i];
        const auto* const input =
            !is_leaf ? nullptr
                     : static_cast<const std::byte*>(work.entries[i].leaves->leaves[slot]);
        const std::size_t bytes = tensor.elements * element;
        if (!is_packed(tensor, element)) {
          parts.push_back({input, tensor.output, bytes});
        } else if (is_leaf) {
          arithmetic.pack(input, at, tensor.elements);
          at += bytes;
        }
      }
      leaves.push_back(cut_into_blocks(parts, element, peers.size()));
    }
    const auto results = std::move(leaves.back());
    leaves.pop_back();
    add_up_block(arithmetic, tree, peers, leaves, results);

    const auto gather =
        choose_directly(work, sum_of_bytes(results)) ? direct_allgather : ring_allgather;
    if (work.plan != nullptr) {
      hierarchical_allgather(peers, *work.plan, *mates_of(work, peers, scratch_), results, gather);
    } else {
      gather(peers, results);
    }
    at = sums;
    for (const auto& tensor : tensors_) {
      if (!is_packed(tensor, element)) continue;
      arithmetic.unpack(at, tensor.output, tensor.elements);
      at += tensor.elements * element;
    }
  }

  static std::size_t sum_of_bytes(const std::vector<Block>& blocks) {
    std::size_t bytes = 0;
    for (const auto& block : blocks) {
      for (const auto& part : block) bytes += part.bytes;
    }
    return bytes;
  }

  // Of this rank, into its block of the results; the blocks of others go to them. `leaves`: those
  // of this rank, by slot.
  void add_up_block(const BatchArithmetic& arithmetic, const SumTree& tree, const Peers& peers,
                    const std::vector<std::vector<Block>>& leaves,
                    const std::vector<Block>& results) {
    using PiecesOfBlocks = std::vector<std::vector<Piece>>;
    const auto rank = static_cast<std::size_t>(peers.rank());
    const PiecesOfBlocks pieces = pieces_of(results);
    std::vector<PiecesOfBlocks> of_leaves;
    for (const auto& blocks : leaves) of_leaves.push_back(pieces_of(blocks));
    const auto& own = pieces[rank];
    std::size_t own_bytes = 0;
    for (const auto& piece : own) own_bytes += piece.bytes;

    std::byte* at = scratch_.reserve(own_bytes * (tree.leaves().size() - leaves.size()));
    std::vector<std::deque<Arrivals>> arrivals(static_cast<std::size_t>(peers.size()));
    for (int distance = 1; distance < peers.size(); ++distance) {
      const int from = peers.previous(distance);
      std::vector<Arrivals::Place> places;
      for (const auto& piece : own) {
        for (int slot = 0; slot < tree.slots_of(from); ++slot) {
          places.push_back({at, piece.bytes});
          at += piece.bytes;
        }
      }
      arrivals[static_cast<std::size_t>(from)].emplace_back(peers, from, std::move(places),
                                                            nullptr);
    }
    Departures departures(peers);
    for (int distance = 1; distance < peers.size(); ++distance) {
      const int to = peers.next(distance);
      const auto block = static_cast<std::size_t>(to);
      for (std::size_t piece = 0; piece < pieces[block].size(); ++piece) {
        for (const auto& leaf : of_leaves) {
          departures.send(to, leaf[block][piece].input, leaf[block][piece].bytes);
        }
      }
    }

    const std::size_t element = size_of(arithmetic.type);
    TreeAdder adder(tree, reduce_function(arithmetic.wire, arithmetic.op), element);
    std::vector<const std::byte*> places(tree.leaves().size());
    for (std::size_t piece = 0; piece < own.size(); ++piece) {
      for (std::size_t leaf = 0; leaf < places.size(); ++leaf) {
        const auto [from, slot] = tree.leaves()[leaf];
        const bool is_own = from == peers.rank();
        places[leaf] = is_own ? of_leaves[static_cast<std::size_t>(slot)][rank][piece].input
                              : arrivals[static_cast<std::size_t>(from)].front().next();
      }
      const std::size_t count = own[piece].bytes / element;
      for (std::size_t done = 0; done < count; done += adder.block()) {
        const std::size_t length = std::min(adder.block(), count - done);
        std::byte* const out = own[piece].result + done * element;
        adder.add_up(places, done, length, out);
        if (arithmetic.changes_sums()) arithmetic.finish(out, length);
      }
    }
    departures.await();
  }

  // `node_peers`: null if it does not go by hosts.
  void reduce_much(const BatchArithmetic& arithmetic, const Peers& peers, const Work& work,
                   NodePeers* node_peers, const std::vector<Part>& parts) {
    const auto reduction = reduction_of(arithmetic);
    std::size_t bytes = 0;
    for (const auto& part : parts) bytes += part.bytes;
    const BlocksAllreduce reduce = [&](const Peers& among, const std::vector<Block>& blocks,
                                       const Reduction& how, FusionBuffer& scratch) {
      between_hosts(work, bytes, [&] {
        if (algorithm_ == Algorithm::halving) {
          halving_allreduce(among, blocks, how, scratch);
        } else if (algorithm_ == Algorithm::direct) {
          direct_allreduce(among, blocks, how, scratch);
        } else {
          ring_allreduce(among, blocks, how, scratch);
        }
      });
    };
    if (node_peers != nullptr) {
      hierarchical_allreduce(peers, *work.plan, *node_peers, parts, reduction, reduce, scratch_);
    } else {
      reduce(peers, cut_into_blocks(parts, size_of(arithmetic.wire), peers.size()), reduction,
             scratch_);
    }
  }

  // All ranks choose the same.
  Algorithm choose(const Work& work, const Peers& peers, std::size_t bytes) const {
    const bool by_links = work.hosts > 0;
    return choose_allreduce({by_links ? work.hosts : peers.size(), work.plan == nullptr}, bytes,
                            by_links ? work.response.link_speed : LinkSpeed(),
                            options().few_steps_bytes);
  }

  // Runs what goes between hosts, and measures it. The lanes of a host work at the same time, so
  // `bytes` are those of all of them.
  template <typename Reduce>
  void between_hosts(const Work& work, std::size_t bytes, Reduce reduce) const {
    const auto begin = Clock::now();
    reduce();
    if (work.hosts == 0 || !options().links) return;
    const auto [sent, taken] =
        transfer_of(algorithm_, work.hosts, bytes, work.response.link_speed, Clock::now() - begin);
    options().links->add_transfer(sent, taken);
  }

  // Packs, reduces, unpacks. One tensor that is not compressed is its own buffer.
  template <typename Reduce>
  void through_buffer(const BatchArithmetic& arithmetic, std::size_t elements, Reduce reduce) {
    const bool own = tensors_.size() == 1 && !arithmetic.compressed();
    std::byte* const buffer =
        own ? tensors_.front().output : buffer_.reserve(elements * size_of(arithmetic.wire));
    std::byte* at = buffer;
    trace::ActivityScope packing(trace::Activity::memcpy_in_fusion_buffer, !own);
    for (const auto& tensor : tensors_) {
      arithmetic.pack(tensor.input, at, tensor.elements);
      at += tensor.elements * size_of(arithmetic.wire);
    }
    packing.end();
    reduce(buffer);
    if (own) return;
    const trace::ActivityScope unpacking(trace::Activity::memcpy_out_fusion_buffer);
    at = buffer;
    for (const auto& tensor : tensors_) {
      arithmetic.unpack(at, tensor.output, tensor.elements);
      at += tensor.elements * size_of(arithmetic.wire);
    }
  }

  // Packs only small tensors; large ones are sent and received where they lie.
  void in_place(const BatchArithmetic& arithmetic, const Peers& peers, const Work& work,
                NodePeers* node_peers) {
    const std::size_t element = size_of(arithmetic.type);
    const std::size_t packed = packed_bytes(element);
    std::byte* at = buffer_.reserve(packed);
    std::vector<Part> parts{{at, at, packed}};
    trace::ActivityScope packing(trace::Activity::memcpy_in_fusion_buffer, packed > 0);
    for (const auto& tensor : tensors_) {
      if (is_packed(tensor, element)) {
        arithmetic.pack(tensor.input, at, tensor.elements);
        at += tensor.elements * element;
        continue;
      }
      const std::byte* input = tensor.input;
      if (arithmetic.prescale != 1.0) {
        arithmetic.pack(tensor.input, tensor.output, tensor.elements);
        input = tensor.output;
      }
      parts.push_back({input, tensor.output, tensor.elements * element});
    }
    packing.end();
    reduce_much(arithmetic, peers, work, node_peers, parts);
    const trace::ActivityScope unpacking(trace::Activity::memcpy_out_fusion_buffer, packed > 0);
    at = parts.front().result;
    for (const auto& tensor : tensors_) {
      if (!is_packed(tensor, element)) continue;
      arithmetic.unpack(at, tensor.output, tensor.elements);
      at += tensor.elements * element;
    }
  }

  Algorithm algorithm_ = Algorithm::ring;  // of the batch that runs
  std::vector<Tensor> tensors_;
  FusionBuffer buffer_;
  FusionBuffer scratch_;
};

class GlooReducescatter final : public GlooOperation {
 public:
  GlooReducescatter(const std::shared_ptr<Mesh>& mesh, const GlooOperationOptions& options)
      : GlooOperation(Kind::reducescatter, "gloo reducescatter", mesh, options) {}

 private:
  // All inputs are copied, since sums of other ranks' rows must lie somewhere: into a block for
  // each rank, with its rows of all tensors.
  void run(const Work& work, const Peers& peers) override {
    const Request& common = work.response.request();
    if (refuse_adasum(common, work.outcomes)) return;
    const BatchArithmetic arithmetic(common, work.active.size());
    const std::size_t element = size_of(arithmetic.wire);
    const auto rows_of = [&](const Entry& entry, int position) {
      return reducescatter_rows(rows(entry.request), work.group.size(), position);
    };
    const auto row_elements = [](const Entry& entry) {
      return row_bytes(entry.request) / size_of(entry.request.type);
    };
    std::vector<std::size_t> sizes;  // elements of each block
    std::size_t elements = 0;
    for (const int position : work.active.positions) {
      std::size_t size = 0;
      for (const auto& entry : work.entries) {
        size += static_cast<std::size_t>(rows_of(entry, position).count) * row_elements(entry);
      }
      sizes.push_back(size);
      elements += size;
    }
    std::byte* const buffer = buffer_.reserve(elements * element);
    std::byte* at = buffer;
    std::byte* own = buffer;
    std::vector<Block> blocks;
    trace::ActivityScope packing(trace::Activity::memcpy_in_fusion_buffer);
    for (int rank = 0; rank < work.active.size(); ++rank) {
      const auto index = static_cast<std::size_t>(rank);
      if (rank == peers.rank()) own = at;
      blocks.push_back({{at, at, sizes[index] * element}});
      for (const auto& entry : work.entries) {
        const auto [begin, count] = rows_of(entry, work.active.positions[index]);
        const std::size_t size = static_cast<std::size_t>(count) * row_elements(entry);
        arithmetic.pack(static_cast<const std::byte*>(entry.input) +
                            static_cast<std::size_t>(begin) * row_bytes(entry.request),
                        at, size);
        at += size * element;
      }
    }
    packing.end();
    if (elements * element <= options().few_steps_bytes) {
      doubling_allreduce(peers, buffer, elements, element,
                         reduce_function(arithmetic.wire, arithmetic.op), scratch_);
      if (!arithmetic.compressed()) {
        arithmetic.finish(own, sizes[static_cast<std::size_t>(peers.rank())]);
      }
    } else if (choose_directly(work, elements * element)) {
      direct_reduce_scatter(peers, blocks, reduction_of(arithmetic), scratch_);
    } else {
      ring_reduce_scatter(peers, blocks, reduction_of(arithmetic), scratch_);
    }
    at = own;
    for (std::size_t i = 0; i < work.entries.size(); ++i) {
      Entry& entry = work.entries[i];
      const auto count = rows_of(entry, work.group.rank).count;
      const std::size_t size = static_cast<std::size_t>(count) * row_elements(entry);
      std::byte* const output =
          output_of(entry, with_rows(entry.request.shape, count), work.outcomes[i]);
      const trace::ActivityScope unpacking(trace::Activity::memcpy_out_fusion_buffer);
      arithmetic.unpack(at, output, size);
      at += size * element;
    }
  }

  FusionBuffer buffer_;
  FusionBuffer scratch_;
};

}  // namespace

std::unique_ptr<Operation> make_gloo_allreduce(const std::shared_ptr<Mesh>& mesh,
                                               const GlooOperationOptions& options) {
  return std::make_unique<GlooAllreduce>(mesh, options);
}

std::unique_ptr<Operation> make_gloo_reducescatter(const std::shared_ptr<Mesh>& mesh,
                                                   const GlooOperationOptions& options) {
  return std::make_unique<GlooReducescatter>(mesh, options);
}

}  // namespace hvd::runtime
