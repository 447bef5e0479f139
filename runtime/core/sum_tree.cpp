#include "runtime/core/sum_tree.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/checksum.h"
#include "runtime/core/reduce_in_order.h"

namespace hvd::runtime {

SumTree::SumTree(std::vector<Leaf> leaves, std::span<const Addition> additions, int divisor)
    : leaves_(std::move(leaves)), divisor_(divisor) {
  // The sum of an addition takes the buffer of one of its operands, if it has one.
  const std::size_t count = leaves_.size();
  std::vector<std::size_t> where(count);  // the place of each leaf's sum so far
  for (std::size_t leaf = 0; leaf < count; ++leaf) where[leaf] = leaf;
  std::vector<std::size_t> free;
  for (const auto& [left, right] : additions) {
    const std::size_t a = where[left];
    const std::size_t b = where[right];
    const bool is_last = steps_.size() + 1 == additions.size();
    std::size_t to = kOut;
    if (!is_last) {
      if (a >= count) {
        to = a;
        if (b >= count) free.push_back(b);
      } else if (b >= count) {
        to = b;
      } else if (!free.empty()) {
        to = free.back();
        free.pop_back();
      } else {
        to = count + buffers_++;
      }
    }
    steps_.push_back({a, b, to});
    where[left] = to;
  }

  std::vector<std::int64_t> numbers{divisor};
  for (const auto& leaf : leaves_) {
    slots_ = std::max(slots_, leaf.slot + 1);
    numbers.insert(numbers.end(), {leaf.rank, leaf.slot});
  }
  for (const auto& [left, right] : additions) {
    numbers.insert(numbers.end(),
                   {static_cast<std::int64_t>(left), static_cast<std::int64_t>(right)});
  }
  digest_ = std::max<std::uint64_t>(1, checksum_of(std::as_bytes(std::span(numbers))));
}

int SumTree::slots_of(int rank) const {
  return static_cast<int>(std::count_if(leaves_.begin(), leaves_.end(),
                                        [rank](const Leaf& leaf) { return leaf.rank == rank; }));
}

TreeAdder::TreeAdder(const SumTree& tree, ReduceFunction reduce, std::size_t element_size)
    : tree_(tree),
      reduce_(reduce),
      element_size_(element_size),
      buffers_(tree.buffers_ * kReducedAtOnce) {}

std::size_t TreeAdder::block() const { return kReducedAtOnce / element_size_; }

const std::byte* TreeAdder::place(std::span<const std::byte* const> leaves, std::size_t at,
                                  std::size_t index) const {
  if (index < leaves.size()) return leaves[index] + at * element_size_;
  return buffers_.data() + (index - leaves.size()) * kReducedAtOnce;
}

void TreeAdder::add_up(std::span<const std::byte* const> leaves, std::size_t at, std::size_t count,
                       std::byte* out) {
  if (tree_.steps_.empty()) {
    const std::byte* const only = place(leaves, at, 0);
    if (only != out) std::memcpy(out, only, count * element_size_);
    return;
  }
  for (const auto& step : tree_.steps_) {
    std::byte* const to = step.to == SumTree::kOut
                              ? out
                              : buffers_.data() + (step.to - leaves.size()) * kReducedAtOnce;
    reduce_(to, place(leaves, at, step.left), place(leaves, at, step.right), count);
  }
}

}  // namespace hvd::runtime
