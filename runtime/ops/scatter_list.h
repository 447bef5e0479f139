// A scatter list: several extents of memory as if they lay side by side, counted in elements or
// bytes; for data that goes through chunks of shared memory, wherever it lies. Writes through a
// null pointer are dropped. A value.
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <vector>

#include "runtime/core/prefetch.h"

namespace hvd::runtime {

template <typename Pointer>
class ScatterList {
 public:
  void add(Pointer data, std::size_t size) {
    if (size == 0) return;
    pieces_.push_back({data, size_, size});
    size_ += size;
  }
  void clear() {
    pieces_.clear();
    size_ = 0;
  }
  std::size_t size() const { return size_; }
  // How many there are from `begin` on, at most so many.
  std::size_t count_from(std::size_t begin, std::size_t most) const {
    return std::min(most, size_ - std::min(begin, size_));
  }

  // Calls f(data, before, from, count) for each piece of [from, to): `count` of what begins at
  // `before` behind `data`; they begin at `from` in the range.
  template <typename F>
  void for_range(std::size_t begin, std::size_t end, F f) const {
    end = std::min(end, size_);
    auto piece = std::upper_bound(pieces_.begin(), pieces_.end(), begin,
                                  [](std::size_t at, const Piece& p) { return at < p.begin; });
    if (piece != pieces_.begin()) --piece;
    for (std::size_t at = begin; at < end; ++piece) {
      if (const auto next = piece + 1; next != pieces_.end()) fetch(*next);
      const std::size_t before = at - piece->begin;
      const std::size_t count = std::min(end - at, piece->size - before);
      if (piece->data != nullptr) f(piece->data, before, at - begin, count);
      at += count;
    }
  }

 private:
  struct Piece {
    Pointer data;
    std::size_t begin;
    std::size_t size;
  };
  // Small pieces are over before the processor has seen that it could read ahead.
  static void fetch(const Piece& piece) {
    if constexpr (std::is_same_v<std::remove_cv_t<std::remove_pointer_t<Pointer>>, std::byte>) {
      constexpr std::size_t kMost = 1024;
      prefetch(piece.data, std::min(piece.size, kMost));
    }
  }
  std::vector<Piece> pieces_;
  std::size_t size_ = 0;
};

// The number of elements in all of them.
template <typename Pointer>
std::size_t count_from(const std::vector<ScatterList<Pointer>>& lists, std::size_t begin,
                       std::size_t most) {
  std::size_t count = 0;
  for (const auto& list : lists) count += list.count_from(begin, most);
  return count;
}

using Inputs = ScatterList<const std::byte*>;
using Outputs = ScatterList<std::byte*>;

}  // namespace hvd::runtime
