// Which of the tensors that are ready travel together. Pure.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "base/clock.h"
#include "runtime/request.h"

namespace hvd::runtime {

// A tensor that all ranks have submitted, or an error about it.
struct Ready {
  Request request;
  Status error;
  TimePoint since{};
};

// Takes the next batch out of `ready`, which is not empty: its first tensor, and every later one
// that may share a buffer with it (an allreduce of the same type, operation and factors) while the
// batch stays within `threshold` bytes. Tensors that do not fit are looked past and keep their
// order; the search ends when what was taken and what was skipped together exceed the threshold, so
// that nobody is overtaken by more than that.
std::vector<Ready> take_batch(std::deque<Ready>& ready, std::size_t threshold);

}  // namespace hvd::runtime
