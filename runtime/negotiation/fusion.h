// Which of the tensors that are ready travel together. Pure.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "base/clock.h"
#include "runtime/core/request.h"

namespace hvd::runtime {

// A tensor that all ranks have submitted, or an error about it.
struct Ready {
  SharedTensor tensor;
  Status error;
  TimePoint since{};
  std::vector<int> joined = {};  // Response::joined
  int last_joined = -1;          // Response::last_joined
  const Request& request() const { return tensor->request; }
};

enum class Fusion {
  look_ahead,   // whatever may share a buffer, as far as the threshold reaches
  groups_only,  // only neighbours of one group
};

// Takes the next batch out of `ready`, which is not empty: its first tensor, and every later one
// that may share a buffer with it while the batch stays within `threshold` bytes. Allreduces,
// reducescatters and allgathers may, each with their like: of one process set, type and kind of
// memory, and of one operation, factors and compression where there is a reduction. Everything else
// goes alone.
//
// Tensors that do not fit are looked past and keep their order; the search ends when what was taken
// and what was skipped together exceed the threshold, so that nobody is overtaken by more than
// that.
std::vector<Ready> take_batch(std::deque<Ready>& ready, std::size_t threshold,
                              Fusion fusion = Fusion::look_ahead);

}  // namespace hvd::runtime
