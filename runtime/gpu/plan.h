// The decisions about a batch before a GPU sees it: the types that travel, the reduction that the
// library is asked for, the places of the tensors in a fusion buffer. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/status.h"
#include "runtime/core/request.h"
#include "runtime/gpu/gpu.h"
#include "runtime/ops/hierarchy.h"

namespace hvd::runtime::gpu {

// Places in fusion buffers are aligned for the widest load of a thread.
inline constexpr std::size_t kAlignment = 16;
constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// How elements of one batch of a reduction travel.
struct ReductionPlan {
  DataType type = DataType::uint8;  // of the tensors
  DataType wire = DataType::uint8;  // what is added up; the library has no 16-bit integers, say
  Reduction reduction = Reduction::sum;
  ElementCast in;   // on the way to the wire
  ElementCast out;  // and back

  // Whether elements could travel from where they lie.
  bool as_they_are() const { return in.changes_nothing(); }
};
// For all operations but adasum (ops/gpu_adasum.cpp). `ranks`: those that give something;
// `adds_float8`: the library does, for all of them.
ReductionPlan plan_reduction(const Request& request, int ranks, bool adds_float8);

// Whether an allreduce of these ranks can go by hosts: several ranks on each of several hosts, as
// many on all, so that each has as much to do and averages of averages are averages.
bool can_go_by_hosts(const HostPlan& plan);

// Where tensors of these sizes lie, one after the other, each aligned.
struct Packing {
  std::vector<std::size_t> offsets;
  std::size_t bytes = 0;
};
Packing pack(std::span<const std::size_t> sizes);

// Whether an allgather of these goes through a buffer of equal blocks, one for each rank, rather
// than as a broadcast of each rank: padding is little.
bool gathers_in_blocks(std::span<const std::size_t> bytes_of_ranks);

// How many members give an id that others meet at: one for some hundreds, where the library can.
int roots_of(int size, int library_version);
// The members that do, ascending.
std::vector<int> root_ranks(int size, int roots);

}  // namespace hvd::runtime::gpu
