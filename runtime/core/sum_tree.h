// A sum along a given tree: what an allreduce adds up if the order of additions is not its own, as
// that of hvd's shards (worker/shards). Each rank has some leaves of the tree, or none, and in
// whatever memory they lie, the same numbers are added: the bits of the sum are those of the tree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/core/arithmetic.h"

namespace hvd::runtime {

// Adds what is at the place `right` to what is at `left`. The sum is at the place of `left`.
struct Addition {
  std::size_t left = 0;
  std::size_t right = 0;
  friend bool operator==(const Addition&, const Addition&) = default;
};

// Does not change. Safe from any thread.
class SumTree {
 public:
  struct Leaf {
    int rank = 0;  // its position among the ranks of the allreduce
    int slot = 0;  // its position among the leaves of that rank
  };

  // At least one leaf; those of a rank are in the order of their slots. The additions make one sum
  // of all leaves, whose places are their indices.
  // `divisor`: of an average.
  SumTree(std::vector<Leaf> leaves, std::span<const Addition> additions, int divisor);

  // Equal on ranks that have the same tree, and never 0.
  std::uint64_t digest() const { return digest_; }
  const std::vector<Leaf>& leaves() const { return leaves_; }
  int divisor() const { return divisor_; }
  // How many leaves a rank has, and the most of one rank.
  int slots_of(int rank) const;
  int slots() const { return slots_; }

 private:
  friend class TreeAdder;
  // An addition of two places: leaves, and behind them buffers. `to` is a buffer, or kOut.
  static constexpr std::size_t kOut = SIZE_MAX;
  struct Step {
    std::size_t left = 0;
    std::size_t right = 0;
    std::size_t to = kOut;
  };

  std::vector<Leaf> leaves_;
  int divisor_;
  int slots_ = 0;
  std::uint64_t digest_ = 0;
  std::vector<Step> steps_;
  std::size_t buffers_ = 0;
};

// The leaves of this rank for one tensor, by their slots; each has as many elements as the tensor.
struct TreeInput {
  std::shared_ptr<const SumTree> tree;
  std::vector<const void*> leaves;
};

// Adds up along a tree, of which it is a view. For one thread.
class TreeAdder {
 public:
  TreeAdder(const SumTree& tree, ReduceFunction reduce, std::size_t element_size);

  std::size_t block() const;  // elements
  // The sum of the elements from `at` on of all leaves, of at most a block(). leaves[i] is where
  // those of leaf i begin. `out` may be where they lie in one of the leaves.
  void add_up(std::span<const std::byte* const> leaves, std::size_t at, std::size_t count,
              std::byte* out);

 private:
  const std::byte* place(std::span<const std::byte* const> leaves, std::size_t at,
                         std::size_t index) const;

  const SumTree& tree_;
  ReduceFunction reduce_;
  std::size_t element_size_;
  std::vector<std::byte> buffers_;
};

}  // namespace hvd::runtime
