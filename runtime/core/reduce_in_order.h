// The sum of what several ranks have in memory, in the order of the ranks: the same bits, whichever
// rank adds them up. For any thread.
#pragma once

#include <array>
#include <cstddef>

#include "runtime/core/arithmetic.h"

namespace hvd::runtime {

// As much as is reduced at a time: a block of each rank, and their sum, stay in the first cache.
inline constexpr std::size_t kReducedAtOnce = 8 << 10;

// `count` elements, at most kReducedAtOnce bytes, of at least two ranks: elements_of(rank) is where
// the rank's are. Into `out`, which may be where one rank's are.
template <typename ElementsOf>
void reduce_in_order(ReduceFunction reduce, int ranks, const ElementsOf& elements_of,
                     std::byte* out, std::size_t count) {
  const int last = ranks - 1;
  if (last == 1) {
    reduce(out, elements_of(0), elements_of(1), count);
    return;
  }
  alignas(64) std::array<std::byte, kReducedAtOnce> sum;  // NOLINT: it is written before it is read
  reduce(sum.data(), elements_of(0), elements_of(1), count);
  for (int rank = 2; rank < last; ++rank) reduce(sum.data(), sum.data(), elements_of(rank), count);
  reduce(out, sum.data(), elements_of(last), count);
}

}  // namespace hvd::runtime
