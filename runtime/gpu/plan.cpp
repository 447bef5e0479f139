#include "runtime/gpu/plan.h"

#include <algorithm>

#include "runtime/core/arithmetic.h"

namespace hvd::runtime::gpu {
namespace {

constexpr int kScalableVersion = 22300;  // ncclCommInitRankScalable
constexpr int kRanksPerRoot = 256;

// The library adds no booleans, no 16-bit integers, and float8 not everywhere. (Every float8 is a
// float32.)
DataType native_type(DataType type, bool adds_float8) {
  switch (type) {
    case DataType::boolean:
      return DataType::uint8;
    case DataType::int16:
    case DataType::uint16:
      return DataType::int32;
    case DataType::float8_e4m3:
    case DataType::float8_e5m2:
      return adds_float8 ? type : DataType::float32;
    default:
      return type;
  }
}

Reduction native_reduction(DataType type, ReduceOp op, bool averages) {
  if (type == DataType::boolean) {
    const bool any = op == ReduceOp::sum || op == ReduceOp::max;
    return any ? Reduction::max : Reduction::min;
  }
  switch (op) {
    case ReduceOp::min:
      return Reduction::min;
    case ReduceOp::max:
      return Reduction::max;
    case ReduceOp::product:
      return Reduction::product;
    case ReduceOp::average:
      return averages ? Reduction::average : Reduction::sum;
    default:
      return Reduction::sum;
  }
}

}  // namespace

ReductionPlan plan_reduction(const Request& request, int ranks, bool adds_float8) {
  ReductionPlan plan;
  plan.type = request.type;
  const DataType sent = wire_type(request.type, request.op, request.compression);
  plan.wire = native_type(sent, adds_float8);
  const bool compressed = sent != request.type;
  const bool average = request.op == ReduceOp::average;
  const bool averages = average && is_floating_point(request.type) && !compressed;
  plan.reduction = native_reduction(request.type, request.op, averages);
  plan.in = {plan.type, plan.wire, request.prescale, 1};
  plan.out = {plan.wire, plan.type, request.postscale, 1};
  if (average && !averages) {
    if (compressed) {
      plan.out.factor /= ranks;
    } else if (request.type != DataType::boolean) {
      plan.out.divisor = ranks;
    }
  }
  return plan;
}

bool can_go_by_hosts(const HostPlan& plan) {
  const auto ranks_of_each = static_cast<std::size_t>(plan.lanes);
  return plan.useful() && std::all_of(plan.hosts.begin(), plan.hosts.end(), [&](const auto& ranks) {
           return ranks.size() == ranks_of_each;
         });
}

Packing pack(std::span<const std::size_t> sizes) {
  Packing packing;
  packing.offsets.reserve(sizes.size());
  for (const auto size : sizes) {
    packing.offsets.push_back(packing.bytes);
    packing.bytes += aligned(size);
  }
  return packing;
}

bool gathers_in_blocks(std::span<const std::size_t> bytes_of_ranks) {
  constexpr std::size_t kLittle = std::size_t{1} << 20;
  std::size_t largest = 0;
  std::size_t total = 0;
  for (const auto bytes : bytes_of_ranks) {
    largest = std::max(largest, bytes);
    total += bytes;
  }
  const std::size_t padded = largest * bytes_of_ranks.size();
  return padded <= kLittle || padded - total <= total / 4;
}

int roots_of(int size, int library_version) {
  if (library_version < kScalableVersion) return 1;
  return std::max(1, (size + kRanksPerRoot - 1) / kRanksPerRoot);
}

std::vector<int> root_ranks(int size, int roots) {
  std::vector<int> ranks;
  ranks.reserve(static_cast<std::size_t>(roots));
  for (std::int64_t root = 0; root < roots; ++root) {
    ranks.push_back(static_cast<int>(root * size / roots));
  }
  return ranks;
}

}  // namespace hvd::runtime::gpu
