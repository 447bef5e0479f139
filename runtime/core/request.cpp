#include "runtime/core/request.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/text.h"

namespace hvd::runtime {

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
    case DataType::float8_e4m3:
      return "float8_e4m3";
    case DataType::float8_e5m2:
      return "float8_e5m2";
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

bool equal_except_name(const Request& one, const Request& another) {
  const auto all_but_the_name = [](const Request& request) {
    return std::tie(request.kind, request.type, request.op, request.root, request.prescale,
                    request.postscale, request.shape, request.on_host, request.compression,
                    request.process_set, request.group, request.group_size, request.ranks,
                    request.by_members, request.tree);
  };
  return all_but_the_name(one) == all_but_the_name(another);
}

// Empty shapes are checked as if their extents were 1: their extents must be safe to add and
// multiply, too.
Status check_shape(const std::vector<std::int64_t>& shape, DataType type, int times) {
  auto bytes = static_cast<std::int64_t>(size_of(type)) * times;
  for (const auto extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(bytes, std::max<std::int64_t>(extent, 1), &bytes)) {
      return {Code::invalid_argument,
              cat("invalid shape ", shape_text(shape),
                  extent < 0 ? ": negative extent"
                             : cat(": its size in ", type_name(type), " overflows"))};
    }
  }
  return {};
}

namespace {

constexpr std::size_t kMaxName = 4096;
constexpr std::size_t kMaxDimensions = 256;

template <typename... Parts>
Status refuse(const Parts&... why) {
  return {Code::invalid_argument, cat(why...)};
}

bool reduces(Kind kind) { return kind == Kind::allreduce || kind == Kind::reducescatter; }

bool can_be_grouped(Kind kind) {
  return reduces(kind) || kind == Kind::allgather || kind == Kind::broadcast ||
         kind == Kind::alltoall;
}

Status check_adasum(const Request& request) {
  if (!reduces(request.kind) || request.op != ReduceOp::adasum) return {};
  if (request.kind != Kind::allreduce) return refuse("adasum is supported for allreduce only");
  if (is_floating_point(request.type)) return {};
  return refuse("adasum needs floating point, not ", type_name(request.type));
}

// Bytes of the network may be any number where one of an enumeration should be.
Status check_values(const Request& request) {
  if (request.kind > Kind::send_recv) return refuse("no such operation");
  if (static_cast<int>(request.type) >= kDataTypes) return refuse("no such element type");
  if (request.op > ReduceOp::product) return refuse("no such reduce operation");
  HVD_RETURN_IF_ERROR(check_adasum(request));
  if (request.compression > Compression::bfloat16) return refuse("no such compression");
  if (std::isnan(request.prescale) || std::isnan(request.postscale)) {
    return refuse("prescale/postscale is NaN");
  }
  if (request.by_members && request.kind != Kind::add_process_set &&
      request.kind != Kind::remove_process_set) {
    return refuse("only process sets are added and removed by their members");
  }
  const bool adds = request.kind == Kind::allreduce && request.on_host && request.prescale == 1.0 &&
                    request.compression == Compression::none &&
                    (request.op == ReduceOp::sum || request.op == ReduceOp::average);
  if (request.tree != 0 && !adds) return refuse("it cannot add along a tree");
  if (request.process_set < 0) {
    return {Code::not_found, cat("invalid process set ", request.process_set)};
  }
  return {};
}

Status check_name(const std::string& name) {
  if (name.empty()) return refuse("the name is empty");
  if (name.size() <= kMaxName) return {};
  return refuse("the name has ", name.size(), " bytes; ", kMaxName, " are allowed");
}

Status check_group(const Request& request) {
  const std::string& group = request.group;
  if (group.size() > kMaxName) {
    return refuse("the name of the group has ", group.size(), " bytes; ", kMaxName, " are allowed");
  }
  if (group.empty() ? request.group_size != 0 : request.group_size < 1) {
    return refuse("a group of ", request.group_size, " tensors with the name \"", group, "\"");
  }
  if (!group.empty() && !can_be_grouped(request.kind)) {
    return refuse("it cannot be part of a group");
  }
  return {};
}

// The size is checked for all ranks together, so that no sum of their rows can overflow.
Status check_dimensions(const Request& request, int world_size) {
  if (request.shape.size() > kMaxDimensions) {
    return refuse("the shape has ", request.shape.size(), " dimensions; ", kMaxDimensions,
                  " are allowed");
  }
  HVD_RETURN_IF_ERROR(check_shape(request.shape, request.type, world_size));
  const bool has_rows = request.kind == Kind::allgather || request.kind == Kind::alltoall ||
                        request.kind == Kind::reducescatter;
  if (!has_rows || !request.shape.empty()) return {};
  return refuse("a scalar has no rows; at least one dimension is needed");
}

Status check_rank(int rank, int world_size) {
  if (rank >= 0 && rank < world_size) return {};
  return refuse("there is no rank ", rank, " in a world of ", world_size);
}

Status check_members(const Request& request, int world_size) {
  if (request.ranks.empty()) return refuse("a process set needs at least one rank");
  int before = -1;
  for (const int rank : request.ranks) {
    HVD_RETURN_IF_ERROR(check_rank(rank, world_size));
    if (rank <= before) {
      return refuse("its ranks must be in ascending order, without duplicates");
    }
    before = rank;
  }
  return {};
}

Status check_new_set(const Request& request, int world_size) {
  if (request.process_set != kGlobalSet) {
    return refuse("a process set is created from ranks of the world, not of another set");
  }
  return check_members(request, world_size);
}

Status check_removal(const Request& request, int world_size) {
  if (request.process_set == kGlobalSet) return refuse("the global one cannot be removed");
  return request.by_members ? check_members(request, world_size) : Status();
}

Status check_send_recv(const Request& request, int world_size) {
  if (request.process_set != kGlobalSet) {
    return refuse("send and recv name ranks of the world, not of a process set");
  }
  if (request.ranks.size() != 2) return refuse("it needs a sender and a receiver");
  for (const int rank : request.ranks) HVD_RETURN_IF_ERROR(check_rank(rank, world_size));
  if (request.ranks[0] != request.ranks[1]) return {};
  return refuse("rank ", request.ranks[0], " cannot send to itself");
}

// The rules of one kind of operation.
Status check_kind(const Request& request, int world_size) {
  switch (request.kind) {
    case Kind::broadcast:
      if (request.root >= 0 && request.root < world_size) return {};
      return refuse("there is no root rank ", request.root, " in a world of ", world_size);
    case Kind::join:
      if (request.process_set == kGlobalSet) return {};
      return refuse("join applies to all process sets at once");
    case Kind::add_process_set:
      return check_new_set(request, world_size);
    case Kind::remove_process_set:
      return check_removal(request, world_size);
    case Kind::send_recv:
      return check_send_recv(request, world_size);
    default:
      return {};
  }
}

Status check_all(const Request& request, int world_size) {
  HVD_RETURN_IF_ERROR(check_name(request.name));
  HVD_RETURN_IF_ERROR(check_values(request));
  HVD_RETURN_IF_ERROR(check_group(request));
  HVD_RETURN_IF_ERROR(check_dimensions(request, world_size));
  return check_kind(request, world_size);
}

}  // namespace

Status check_request(const Request& request, int world_size) {
  const Status checked = check_all(request, world_size);
  if (checked.ok()) return {};
  return {checked.code(),
          cat(kind_name(request.kind), " \"", request.name, "\": ", checked.message())};
}

std::size_t bytes_of(const ResponseTensor& tensor) {
  const Request& request = tensor.request;
  if (tensor.first_extents.empty() || request.shape.empty()) return request.bytes();
  std::size_t row = size_of(request.type);
  for (std::size_t i = 1; i < request.shape.size(); ++i) {
    row *= static_cast<std::size_t>(request.shape[i]);
  }
  std::size_t rows = 0;
  for (const auto extent : tensor.first_extents) rows += static_cast<std::size_t>(extent);
  return row * rows;
}

}  // namespace hvd::runtime
