// Training whose result does not depend on the number of workers: the same bits in a world of one
// and in a world of sixteen, and whatever was lost and joined on the way.
//
// A job has a fixed number of shards. Each step shares its batch out among the shards, not among
// the ranks; each rank computes the gradient of each of its shards in turn; and the gradients are
// added along a tree over the shards that no world changes.
//
//     hvd::ShardReducer reducer({.shards = 16});
//     for (auto& parameter : model) reducer.add(parameter.name, parameter.gradient);
//     for (;; ++step) {
//       for (const int shard : reducer.begin(step)) {
//         auto samples = hvd::Sampler(sampler).next(32, shard, 16);
//         hvd::ShardRandom random(seed, shard, step);
//         ...                                    // the gradients of these samples alone
//         reducer.ready(shard);                  // adds them up; their memory is free again
//       }
//       sampler.next(32, 0, 16);                 // the samples of all shards are handed out
//       reducer.synchronize();                   // the average over all shards, on every rank
//       optimizer.step();
//     }
//
// So the batch of a step and the learning rate stay the same, too, when the world changes. hvd
// promises the bits if the computation of a shard has the same bits wherever it runs: the same
// program on processors or GPUs of one kind, without atomics and tuned kernels (docs/shards.md).
//
// n shards are split at the largest power of two below n. Additions of IEEE numbers commute, so the
// tree alone determines the bits of a sum, and each rank adds up the subtrees that it has whole
// (compare ReproRed, which does the same for reductions of MPI).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <hvd/export.h>
#include <hvd/process_set.h>
#include <hvd/standard_library.h>
#include <hvd/tensor.h>
#include <hvd/types.h>

namespace hvd {

inline constexpr int kMaxShards = 65'536;

// Shards that follow each other, `begin` and those up to `end`: for (const int shard : range).
struct ShardRange {
  int first = 0;
  int last = 0;  // one behind

  int size() const { return last - first; }
  bool contains(int shard) const { return first <= shard && shard < last; }

  class Iterator {
   public:
    explicit Iterator(int shard) : shard_(shard) {}
    int operator*() const { return shard_; }
    Iterator& operator++() {
      ++shard_;
      return *this;
    }
    friend bool operator==(const Iterator&, const Iterator&) = default;

   private:
    int shard_;
  };
  Iterator begin() const { return Iterator(first); }
  Iterator end() const { return Iterator(last); }

  friend bool operator==(const ShardRange&, const ShardRange&) = default;
};

// The shards of this rank in a world of so many: no rank has more than ceil(shards / size), and the
// ranges begin where few subtrees are cut, so that a rank may have fewer, or none. Pure. Throws
// InvalidArgumentError if there are fewer than one or more than kMaxShards shards, or no such rank.
HVD_API ShardRange shards_of(int shards, int rank, int size);

// A stream of random numbers of one shard in one step, the same on whichever rank. It has no state
// that would have to be committed: the numbers are a function of seed, shard, step and their place
// (Philox4x32-10: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011). A generator
// as those of <random>; the distributions of that header may differ between standard libraries. For
// one thread.
class HVD_API ShardRandom {
 public:
  using result_type = std::uint32_t;

  ShardRandom(std::uint64_t seed, int shard, std::uint64_t step);

  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return std::numeric_limits<result_type>::max(); }
  result_type operator()();
  // From 0 to below 1, in steps of 2^-24: exact in float.
  float uniform() { return static_cast<float>((*this)() >> 8) * 0x1p-24F; }
  // Passes over so many numbers, at once.
  void discard(std::uint64_t count);

 private:
  void next_block();

  std::uint32_t key_[2];
  std::uint32_t counter_[4];
  std::uint32_t block_[4];
  int used_ = 4;
};

struct ShardReducerOptions {
  int shards = 0;
  // Before the names of its collectives: two reducers of one process need two.
  std::string name = "shards";
  ReduceOp op = Average;  // of the shards, or Sum
  ProcessSet process_set = {};
};

// Adds the gradients of all shards, on all ranks of the world. All ranks add the same gradients in
// the same order; a step is begin(), ready() for each shard that it returns, in that order, then
// synchronize().
//
// A reducer that is made outside the function of elastic::run outlives worlds, and so do the sums
// of a step. When a rank is lost in the middle of a step, the others form another world and come to
// the same step again: begin() asks them for the shards that were lost, and for no others (compare
// ReCoVer, which redoes micro-batches in this way). That needs a commit after each step, and
// gradients that are the same bits whenever they are computed.
//
// Ownership: the memory of gradients is the caller's, of the host, and read by ready() and written
// by synchronize() only: when it returns, hvd uses none of it. The reducer has as many bytes as all
// gradients for each subtree that a rank has: one where shards / size is a power of two, at most
// 2 log2(shards), more in a step that is repeated; and as many again for synchronize_for(), which
// gives the memory of the gradients back while it goes on.
//
// For one thread. Errors are those of hvd/error.h; after one that synchronize() throws the values
// of the gradients are not defined.
class HVD_API ShardReducer {
 public:
  // Throws InvalidArgumentError for a number of shards that cannot be, or another operation.
  explicit ShardReducer(ShardReducerOptions options);
  // Blocks as reset() does.
  ~ShardReducer();
  ShardReducer(const ShardReducer&) = delete;
  ShardReducer& operator=(const ShardReducer&) = delete;

  // Between steps. Throws InvalidArgumentError if the name is empty or taken, or if the gradient
  // does not lie in the memory of the host.
  void add(std::string name, const TensorView& gradient);
  // The gradient lies elsewhere now, alike.
  void rebind(std::size_t index, void* data);

  int shards() const;
  // Those of this rank, if nothing was computed before.
  ShardRange own() const;

  // The shards that this rank is to compute in this step, ascending. They are own(), unless ranks
  // of this world have the sums of other shards of the step. Where the world is another one than
  // at the last step, or the step the same, a collective call, in which all ranks name the same
  // step: else InvalidArgumentError. The reference is good until the next begin().
  const std::vector<int>& begin(std::uint64_t step);
  // The gradients are those of this shard. Throws InvalidArgumentError if it is not the next one.
  // `samples`: from which they were computed, for the ledger (hvdrun --ledger); without one they
  // are not looked at. Without a begin() before it a step begins that is no other's repetition.
  void ready(int shard, std::span<const std::int64_t> samples = {});
  // Blocks until the gradients are those of all shards. Throws InvalidArgumentError if a shard of
  // this rank is missing.
  void synchronize();
  // The same, for at most so long. False: it goes on, and the next call waits for the rest. Until
  // one has returned true or has thrown, ready() is refused.
  bool synchronize_for(std::chrono::milliseconds timeout);
  // Whether synchronize_for() has returned false, and collectives are under way.
  bool in_flight() const;
  // Forgets the step and what was computed in it; not in the middle of one that other ranks go on
  // with. Blocks until nothing is in flight; after a failure of the world that is at once.
  void reset();

 private:
  class HVD_HIDDEN Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hvd
