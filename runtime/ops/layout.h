// The layout of tensors in operations, whatever carries the bytes: which ranks take part, which
// rows belong to whom, and where an output lies. Pure, but for Entry::allocate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/ops/operation.h"

namespace hvd::runtime {

// The ranks of the set that have not joined, or the two of a send_recv. Only they take part: a
// neutral element that is never sent is right for every operation, and Average divides by the
// number of ranks that gave something.
struct Active {
  std::vector<int> ranks;      // of the world
  std::vector<int> positions;  // of the same ranks, in the set
  int rank = -1;               // own position in `ranks`; -1: this rank has joined
  int size() const { return static_cast<int>(ranks.size()); }
  bool takes_part() const { return rank >= 0; }
};
Active active_of(const Response& response, const Group& group);

// Bytes of one row, everything but the first extent.
std::size_t row_bytes(const Request& request);
std::int64_t rows(const Request& request);  // the first extent; 1 of a scalar
// `shape` with another first extent.
std::vector<std::int64_t> with_rows(std::vector<std::int64_t> shape, std::int64_t rows);

// Rows of the reduced tensor that the set's rank keeps: the first ones get one row more if they
// cannot be shared evenly. Ranks that have joined keep their share, which is dropped, so that
// the shares of the others do not change.
struct Rows {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};
Rows reducescatter_rows(std::int64_t rows, int set_size, int set_rank);

// Finds the output of an entry, asks for it if need be, and writes address and shape into the
// outcome. Null if there is no memory for it: the outcome says so. An output of no elements may be
// null, too; then nothing will be written there.
std::byte* prepare_output(Entry& entry, const std::vector<std::int64_t>& shape, Outcome& outcome);

// The outputs of one batch: as prepare_output(), but throwaway memory where there is none, since
// the other ranks count on this one. For one thread.
class OutputMemory {
 public:
  std::byte* prepare(Entry& entry, const std::vector<std::int64_t>& shape, Outcome& outcome);
  void clear() { throwaway_.clear(); }

 private:
  std::vector<std::unique_ptr<std::byte[]>> throwaway_;
};

// How many rows each rank of the set sends to each, so that every rank comes to the same verdict.
// One rank's row in it, to be sent around, is split_words(set_size) numbers.
std::size_t split_words(int set_size);
std::vector<std::int64_t> encode_splits(const Entry& entry, int set_size);
// The error in the splits that a rank gave, or ok; `first_extent` is its number of rows.
Status check_splits(const Request& request, std::span<const std::int64_t> splits, int world_rank,
                    std::int64_t first_extent, int set_size);
// Rows that the splits' owner sends to the set's rank; they must be right.
std::int64_t split_for(std::span<const std::int64_t> splits, int set_rank,
                       std::int64_t first_extent, int set_size);

// Why a broadcast whose root has joined cannot be.
Status root_has_joined(const Request& request);

// Whether all tensors of the response lie in memory of the host.
bool is_on_host(const Response& response);

// Whether two extents of memory have a byte in common.
bool overlap(const void* a, std::size_t bytes_of_a, const void* b, std::size_t bytes_of_b);

// Waits until the inputs are there.
void await_inputs(const Entries& entries);

}  // namespace hvd::runtime
