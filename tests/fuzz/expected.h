// The inputs of a plan's ranks to a collective, and the expected results: computed in a simple way,
// element for element, with tests/runtime/ops/reference.h. Pure; safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "tests/fuzz/plan.h"
#include "tests/runtime/ops/reference.h"

namespace hvd::fuzz {

using test::Bytes;

// One call of the ranks that have not joined.
class Expected {
 public:
  Expected(const Plan& plan, const CallPlan& call, const std::vector<int>& joined);

  const CallPlan& call() const { return call_; }
  int position_of(int world_rank) const;  // in the set; -1: not a member
  bool is_active(int position) const { return active_[static_cast<std::size_t>(position)]; }
  int active_ranks() const;

  // Shapes, and rows for alltoall, that the member at that position passes and gets.
  std::vector<std::int64_t> input_shape(std::size_t tensor, int position) const;
  std::vector<std::int64_t> output_shape(std::size_t tensor, int position) const;
  std::vector<std::int64_t> received_splits(std::size_t tensor, int position) const;
  // Where the rows of the member begin in the output of an allgather, in bytes.
  std::size_t offset_in_output(std::size_t tensor, int position) const;

  Bytes input(std::size_t tensor, int position) const;
  // The error in the output of the member at that position; empty: it is right. Reductions
  // are computed once for all ranks of this process.
  std::string complaint(std::size_t tensor, int position, const std::byte* output);

 private:
  struct Reduced {
    std::once_flag once;
    Bytes bytes;
  };

  std::size_t set_size() const { return active_.size(); }
  std::int64_t split(std::size_t tensor, int from, int to) const;
  std::size_t row_bytes(std::size_t tensor) const;
  std::uint64_t key(std::size_t tensor, int position) const;
  test::Values values(std::size_t tensor, int position, std::size_t begin, std::size_t count) const;
  void reduce(std::size_t tensor, Bytes& result) const;
  std::string compare_reduced(std::size_t tensor, int position, const std::byte* output);
  std::string compare_moved(std::size_t tensor, int position, const std::byte* output) const;
  double tolerance() const;

  const CallPlan& call_;
  const std::vector<int>& ranks_;  // the world's ranks that form the set
  std::vector<bool> active_;       // by position
  std::vector<Reduced> reduced_;   // of each tensor
};

std::int64_t elements_of(const std::vector<std::int64_t>& shape);

}  // namespace hvd::fuzz
