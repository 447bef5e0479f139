// What travels through the pipeline: a rank's Request, the coordinator's Response to what all ranks
// requested, and the Entry that stays with the rank and knows the memory. Values.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <hvd/types.h>

#include "base/status.h"
#include "runtime/failure.h"

namespace hvd::runtime {

enum class Kind : std::uint8_t { allreduce = 0, broadcast = 1, barrier = 2 };

std::string_view kind_name(Kind kind);                           // "allreduce"
std::string_view type_name(DataType type);                       // "float32"
std::string_view op_name(ReduceOp op);                           // "average"
std::string shape_text(const std::vector<std::int64_t>& shape);  // "[2, 3]"

// Everything that ranks must agree about before they may run it.
struct Request {
  std::string name;
  Kind kind = Kind::allreduce;
  DataType type = DataType::uint8;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  double prescale = 1.0;
  double postscale = 1.0;
  std::vector<std::int64_t> shape;

  std::int64_t elements() const;
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * size_of(type); }
  friend bool operator==(const Request&, const Request&) = default;
};

// ok, or what of it can never be right, on any rank of a world of this size.
Status check_request(const Request& request, int world_size);

// What all ranks run next: the tensors of `names` in one go, or nothing but the delivery of
// `error`.
struct Response {
  Kind kind = Kind::allreduce;
  std::vector<std::string> names;
  Status error;
  friend bool operator==(const Response&, const Response&) = default;
};

// Called exactly once, from a thread of the world; ok or the reason why not. It must not block.
using Callback = std::function<void(const Failure&)>;

struct Entry {
  Request request;
  const void* input = nullptr;
  void* output = nullptr;  // may be the input
  Callback done;
};

}  // namespace hvd::runtime
