// Which of the ready tensors share a batch. Pure.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "base/clock.h"
#include "runtime/core/request.h"

namespace hvd::runtime {

// A tensor that all ranks have requested, or an error about it.
struct ReadyTensor {
  SharedTensor tensor;
  Status error;
  TimePoint since{};
  std::vector<int> joined = {};  // Response::joined
  int last_joined = -1;          // Response::last_joined
  const Request& request() const { return tensor->request; }
};

enum class Fusion {
  look_ahead,   // all tensors that may share a buffer, within the threshold
  groups_only,  // only adjacent tensors of one group
};

// Takes the next batch out of `ready`, which is not empty: its first tensor, and every later one
// that may share a buffer with it while the batch stays within `threshold` bytes. Allreduces,
// reducescatters and allgathers may, each with their own kind: of one process set, data type and
// kind of memory, and of one operation, factors, compression and tree where there is a reduction.
// Every other operation is a batch of its own.
//
// Tensors that do not fit are skipped and keep their order; the search ends when the taken and the
// skipped tensors together exceed the threshold, so no tensor is overtaken by more than that.
std::vector<ReadyTensor> take_batch(std::deque<ReadyTensor>& ready, std::size_t threshold,
                                    Fusion fusion = Fusion::look_ahead);

}  // namespace hvd::runtime
