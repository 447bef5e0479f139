// How extents of memory become blocks of one kernel: a block finds its piece by the number of the
// piece's first block. Pure, and in the form in which a kernel takes it: as its parameter.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/gpu/gpu.h"

namespace hvd::runtime::gpu {

struct Piece {
  const void* from;
  void* to;
  std::uint64_t elements;
  std::uint64_t first_block;
};

// The arguments that fit in one launch of a kernel: 4 KB in all, and of devices and toolkits since
// CUDA 12.1 nearly 32.
template <int kMax>
struct Pieces {
  static constexpr int kCapacity = kMax;
  int count;
  int divisor;
  double factor;
  std::uint64_t elements_per_block;
  Piece pieces[kMax];
};
using FewPieces = Pieces<64>;
using ManyPieces = Pieces<960>;

// How much a block takes on, in elements of the larger of both types: enough for all processors of
// the device several times over, if there is so much, and no less than some loads of each thread.
inline std::uint64_t elements_per_block(std::span<const CopyExtent> extents,
                                        std::size_t element_bytes, int processors) {
  constexpr std::uint64_t kLeast = std::uint64_t{8} << 10;
  constexpr std::uint64_t kMost = std::uint64_t{64} << 10;
  std::uint64_t bytes = 0;
  for (const auto& extent : extents) bytes += extent.elements * element_bytes;
  const auto share = bytes / (static_cast<std::uint64_t>(std::max(processors, 1)) * 8);
  // A multiple of what a block loads at once, so that all but the last are full.
  const auto of_block = std::clamp(share / kLeast * kLeast, kLeast, kMost);
  return of_block / element_bytes;
}

// Takes pieces off the front of `extents`, as many as fit; returns how many blocks they make.
template <int kMax>
std::uint64_t take_pieces(std::span<const CopyExtent>& extents, Pieces<kMax>& pieces) {
  std::uint64_t blocks = 0;
  pieces.count = 0;
  while (!extents.empty() && pieces.count < kMax) {
    const CopyExtent& next = extents.front();
    extents = extents.subspan(1);
    if (next.elements == 0) continue;
    pieces.pieces[pieces.count++] = {next.from, next.to, next.elements, blocks};
    blocks += (next.elements + pieces.elements_per_block - 1) / pieces.elements_per_block;
  }
  return blocks;
}

// The piece that a block works on.
template <int kMax>
#ifdef __CUDACC__
__host__ __device__
#endif
    inline int
    piece_of_block(const Pieces<kMax>& pieces, std::uint64_t block) {
  int low = 0;
  int high = pieces.count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (pieces.pieces[middle].first_block <= block) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace hvd::runtime::gpu
