// A batch that has ended, as the timeline's frames carry it: encoded on the rank that ran it, where
// every nanosecond counts, and decoded on rank 0, by the thread that writes the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/wire.h"
#include "runtime/request.h"
#include "runtime/trace/activity.h"

namespace hvd::runtime::trace {

struct Batch {
  struct Tensor {
    std::string name;
    Kind kind = Kind::allreduce;
    DataType type = DataType::uint8;
    std::vector<std::int64_t> shape;
    Nanoseconds enqueued = 0;
    Nanoseconds asked = 0;
    std::string error;
  };
  std::uint64_t number = 0;  // of the response, the same on all ranks; 0: never decided
  int process_set = kGlobalSet;
  int set_size = 0;
  bool unfinished = false;  // the recording ended before it did
  Nanoseconds decided = 0;  // 0: never
  Nanoseconds begun = 0;    // 0: never
  Nanoseconds ended = 0;
  std::string operation;  // "gloo allreduce"; empty: none was needed
  std::vector<Step> steps;
  std::vector<Tensor> tensors;
};

// Appends, with as little ado as possible: first everything but the tensors, then each tensor.
void append_batch(std::string& out, const Batch& batch_without_tensors, std::size_t tensors);
void append_tensor(std::string& out, std::string_view name, Kind kind, DataType type,
                   const std::vector<std::int64_t>& shape, Nanoseconds enqueued, Nanoseconds asked,
                   std::string_view error);

// The next one; nothing if the bytes are no batch.
std::optional<Batch> read_batch(WireReader& in);

}  // namespace hvd::runtime::trace
