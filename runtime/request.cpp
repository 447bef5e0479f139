#include "runtime/request.h"

#include "base/text.h"

namespace hvd::runtime {

std::string_view kind_name(Kind kind) {
  switch (kind) {
    case Kind::allreduce:
      return "allreduce";
    case Kind::broadcast:
      return "broadcast";
    case Kind::barrier:
      return "barrier";
    case Kind::allgather:
      return "allgather";
    case Kind::alltoall:
      return "alltoall";
    case Kind::reducescatter:
      return "reducescatter";
    case Kind::join:
      return "join";
    case Kind::add_process_set:
      return "add_process_set";
    case Kind::remove_process_set:
      return "remove_process_set";
  }
  return "unknown";
}

std::string_view type_name(DataType type) {
  switch (type) {
    case DataType::boolean:
      return "bool";
    case DataType::uint8:
      return "uint8";
    case DataType::int8:
      return "int8";
    case DataType::uint16:
      return "uint16";
    case DataType::int16:
      return "int16";
    case DataType::int32:
      return "int32";
    case DataType::int64:
      return "int64";
    case DataType::float16:
      return "float16";
    case DataType::bfloat16:
      return "bfloat16";
    case DataType::float32:
      return "float32";
    case DataType::float64:
      return "float64";
  }
  return "unknown";
}

std::string_view op_name(ReduceOp op) {
  switch (op) {
    case ReduceOp::average:
      return "average";
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::adasum:
      return "adasum";
    case ReduceOp::min:
      return "min";
    case ReduceOp::max:
      return "max";
    case ReduceOp::product:
      return "product";
  }
  return "unknown";
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::vector<std::string> extents;
  extents.reserve(shape.size());
  for (const auto extent : shape) extents.push_back(std::to_string(extent));
  return cat("[", join(extents, ", "), "]");
}

std::int64_t Request::elements() const {
  std::int64_t count = 1;
  for (const auto extent : shape) count *= extent;
  return count;
}

Status check_request(const Request& request, int world_size) {
  const auto refuse = [&](const auto&... why) {
    return Status(Code::invalid_argument,
                  cat(kind_name(request.kind), " \"", request.name, "\": ", why...));
  };
  constexpr std::size_t kMaxName = 4096;
  constexpr std::size_t kMaxDimensions = 256;
  if (request.name.empty()) return refuse("a tensor needs a name");
  if (request.name.size() > kMaxName) {
    return refuse("the name has ", request.name.size(), " bytes; ", kMaxName, " are allowed");
  }
  if (request.kind > Kind::barrier) return refuse("no such operation");
  if (request.type > DataType::float64) return refuse("no such element type");
  if (request.op > ReduceOp::product) return refuse("no such reduce operation");
  if (request.op == ReduceOp::adasum) return refuse("the reduce operation adasum is not there yet");
  if (request.shape.size() > kMaxDimensions) {
    return refuse("the shape has ", request.shape.size(), " dimensions; ", kMaxDimensions,
                  " are allowed");
  }
  std::int64_t bytes = static_cast<std::int64_t>(size_of(request.type));
  for (const auto extent : request.shape) {
    if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) {
      return refuse("no memory has the shape ", shape_text(request.shape));
    }
  }
  if (request.kind == Kind::broadcast && (request.root < 0 || request.root >= world_size)) {
    return refuse("there is no root rank ", request.root, " in a world of ", world_size);
  }
  return {};
}

}  // namespace hvd::runtime
