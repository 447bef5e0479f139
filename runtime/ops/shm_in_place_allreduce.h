// An allreduce of tensors that lie in the heaps of all ranks of a host (shm/shared_heap.h), each in
// place: a rank reduces its share of every slice straight from the tensors of all ranks into its
// own, and reads the other shares from the tensors of those that have reduced them. Nothing is
// packed or unpacked. A rank writes into its own memory only.
//
// P ranks, n bytes, slices of w: each rank reads 2 (P - 1) / P n of others, in n / w + 2 steps.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/core/arithmetic.h"
#include "runtime/core/batch_arithmetic.h"
#include "runtime/ops/operation.h"
#include "runtime/ops/scatter_list.h"
#include "runtime/shm/shm_group.h"

namespace hvd::runtime {

class ShmInPlaceAllreduce {
 public:
  ShmInPlaceAllreduce(ShmCollective& collective, const BatchArithmetic& arithmetic);

  // True if the tensors of this rank can be reduced where they lie. Their offsets in the heap then
  // stand in its chunk. To be called before the first sync(); `outcomes` has the outputs.
  bool offer(const Entries& entries, std::span<const Outcome> outcomes);
  // Reduces the batch. To be called after that sync(), if all ranks have offered their tensors.
  Status run(const Entries& entries, std::span<const Outcome> outcomes);

 private:
  Status find_tensors(const Entries& entries, std::span<const Outcome> outcomes);
  void reduce(std::size_t begin, std::size_t end) const;
  void copy_from(int rank, std::size_t begin, std::size_t end) const;

  ShmCollective& collective_;
  const BatchArithmetic& arithmetic_;
  std::size_t element_;
  ReduceFunction reduce_;
  std::vector<std::byte*> places_;  // of each tensor, for each rank in turn
  // The batch. The data of a tensor are its places: data[r] is where it is on rank r.
  ScatterList<std::byte* const*> tensors_;
};

}  // namespace hvd::runtime
