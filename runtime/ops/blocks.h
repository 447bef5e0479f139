// Data that is reduced or gathered block by block: by the ring (ring.h) and by halving (halving.h).
//
// The data need not lie in one extent of memory: a block is a list of parts, wherever they are. So
// tensors of one batch that are large are sent from and received where they lie, without being
// copied into a fusion buffer and back.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "runtime/core/arithmetic.h"

namespace hvd::runtime {

// One extent of a block: where this rank's own elements are, and where what was made of them goes.
// They may be the same memory.
struct Part {
  const std::byte* input = nullptr;  // allgather: unused
  std::byte* result = nullptr;
  std::size_t bytes = 0;
};
// Rank b ends up with the reduced block b, or began with it (allgather). On all ranks a block has
// as many parts, of the same sizes.
using Block = std::vector<Part>;
// Cuts what the parts hold, one after another, into blocks of nearly the same size.
std::vector<Block> cut_into_blocks(const std::vector<Part>& parts, std::size_t element_size,
                                   int blocks);

struct Reduction {
  ReduceFunction reduce = nullptr;
  std::size_t element_size = 1;
  // Applied to what is reduced completely, once, by the rank whose block it is; may be empty.
  std::function<void(void* data, std::size_t elements)> finish = {};
};

}  // namespace hvd::runtime
