// A library of collectives on tensors of the host, such as MPI or oneCCL, as its operations
// (ops/library_ops.h) use it. Its calls block, and nothing can interrupt them.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include <hvd/types.h>

#include "base/status.h"
#include "runtime/ops/operation.h"

namespace hvd::runtime {

// The members of one set. All of them make the same calls in the same order. A call blocks until
// the library has done it. Numbers are of elements or bytes for each member, at most INT_MAX in
// all. For one thread at a time.
class LibraryCommunicator {
 public:
  // All members destroy it, unless the world has failed: then it is left in memory.
  virtual ~LibraryCommunicator() = default;
  // `from` may be `to`. Average sums.
  virtual Status allreduce(const void* from, void* to, std::size_t elements, DataType type,
                           ReduceOp op) = 0;
  // Reduces `data`, and leaves this member's part of the result at its begin.
  virtual Status reduce_scatter(void* data, std::span<const int> elements, DataType type,
                                ReduceOp op) = 0;
  // This member's part lies in its place already.
  virtual Status allgather(void* data, std::span<const int> bytes) = 0;
  virtual Status broadcast(void* data, std::size_t bytes, int root) = 0;
  virtual Status alltoall(const void* from, std::span<const int> sent, void* to,
                          std::span<const int> received) = 0;
};

// In one world.
class Library {
 public:
  virtual ~Library() = default;
  virtual std::string_view name() const = 0;   // "mpi", as in the names of its operations
  virtual std::string_view title() const = 0;  // "MPI"
  // Begins the library, if that is still to be done; all members of the world do.
  virtual Status open() = 0;
  // An error: the program has ended the library.
  virtual Status usable() const { return {}; }
  // What it does not reduce is left to operations of lower priority. Never adasum.
  virtual bool reduces(DataType /*type*/, ReduceOp /*op*/) const { return true; }
  // Whether reduce_scatter() takes only parts of equal sizes.
  virtual bool wants_equal_parts() const { return false; }
  // Larger tensors of a batch are not packed: the library reduces them where they lie.
  virtual std::size_t packed_bytes() const { return std::size_t{64} << 10; }
  // A communicator of these members; they alone call it. Blocks.
  virtual Result<std::unique_ptr<LibraryCommunicator>> make(const Group& group) = 0;
  // The world has failed; from any thread.
  virtual void world_failed() {}
};

}  // namespace hvd::runtime
