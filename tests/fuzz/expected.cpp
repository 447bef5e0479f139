#include "tests/fuzz/expected.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>

#include "base/text.h"
#include "runtime/ops/layout.h"
#include "tests/fuzz/random.h"

namespace hvd::fuzz {
namespace {

using runtime::Kind;
using test::Values;

// Elements are computed in pieces of this size, so that a tensor of 8 MB is never held as numbers.
constexpr std::size_t kAtOnce = 4'096;

// Small pseudo-random numbers whose sums and products every type represents exactly, or, for 8-bit
// integers, wraps in the same way (ops/reference.h).
double value_of(DataType type, ReduceOp op, std::uint64_t key, std::size_t i) {
  const auto number = static_cast<std::int64_t>(mixed(key + i) >> 32);
  if (type == DataType::boolean) return number % 3 != 0 ? 1 : 0;
  if (op == ReduceOp::product) return number % 4 == 0 ? 2 : 1;
  if (is_float8(type)) return static_cast<double>(number % 3 - 1);
  return static_cast<double>(number % 11 - (test::is_signed(type) ? 5 : 0));
}

// Pseudo-random bytes, for operations that only move data.
void fill(std::uint64_t key, std::size_t begin, std::byte* to, std::size_t count) {
  for (std::size_t at = 0; at < count;) {
    const std::uint64_t word = mixed(key + (begin + at) / 8);
    const std::size_t skip = (begin + at) % 8;
    const std::size_t part = std::min(8 - skip, count - at);
    std::memcpy(to + at, reinterpret_cast<const char*>(&word) + skip, part);
    at += part;
  }
}

std::string difference(std::size_t at, std::size_t count, const std::string& found,
                       const std::string& wanted) {
  return cat("element ", at, " of ", count, " is ", found, ", not ", wanted);
}

}  // namespace

std::int64_t elements_of(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

Expected::Expected(const Plan& plan, const CallPlan& call, const std::vector<int>& joined)
    : call_(call), ranks_(plan.sets[call.set].ranks), reduced_(call.tensors.size()) {
  for (const int rank : ranks_) {
    active_.push_back(std::find(joined.begin(), joined.end(), rank) == joined.end());
  }
}

int Expected::position_of(int world_rank) const {
  const auto found = std::find(ranks_.begin(), ranks_.end(), world_rank);
  return found == ranks_.end() ? -1 : static_cast<int>(found - ranks_.begin());
}

int Expected::active_ranks() const {
  return static_cast<int>(std::count(active_.begin(), active_.end(), true));
}

// --- shapes -------------------------------------------------------------------------------------

std::vector<std::int64_t> Expected::input_shape(std::size_t tensor, int position) const {
  const TensorPlan& plan = call_.tensors[tensor];
  if (plan.scalar) return {};
  std::vector<std::int64_t> shape{plan.rows[static_cast<std::size_t>(position)]};
  shape.insert(shape.end(), plan.row.begin(), plan.row.end());
  return shape;
}

std::int64_t Expected::split(std::size_t tensor, int from, int to) const {
  const TensorPlan& plan = call_.tensors[tensor];
  const auto sender = static_cast<std::size_t>(from);
  if (!is_active(from)) return 0;
  if (plan.splits.empty()) return plan.rows[sender] / static_cast<std::int64_t>(set_size());
  return plan.splits[sender][static_cast<std::size_t>(to)];
}

std::vector<std::int64_t> Expected::received_splits(std::size_t tensor, int position) const {
  std::vector<std::int64_t> received;
  for (std::size_t from = 0; from < set_size(); ++from) {
    received.push_back(split(tensor, static_cast<int>(from), position));
  }
  return received;
}

std::vector<std::int64_t> Expected::output_shape(std::size_t tensor, int position) const {
  auto shape = input_shape(tensor, position);
  const TensorPlan& plan = call_.tensors[tensor];
  if (call_.kind == Kind::allgather) {
    shape.front() = 0;
    for (std::size_t from = 0; from < set_size(); ++from) {
      if (active_[from]) shape.front() += plan.rows[from];
    }
  } else if (call_.kind == Kind::alltoall) {
    const auto received = received_splits(tensor, position);
    shape.front() = std::accumulate(received.begin(), received.end(), std::int64_t{0});
  } else if (call_.kind == Kind::reducescatter) {
    shape.front() =
        runtime::reducescatter_rows(shape.front(), static_cast<int>(set_size()), position).count;
  }
  return shape;
}

std::size_t Expected::row_bytes(std::size_t tensor) const {
  return static_cast<std::size_t>(elements_of(call_.tensors[tensor].row)) * size_of(call_.type);
}

std::size_t Expected::offset_in_output(std::size_t tensor, int position) const {
  std::int64_t rows = 0;
  for (int from = 0; from < position; ++from) {
    if (is_active(from)) rows += call_.tensors[tensor].rows[static_cast<std::size_t>(from)];
  }
  return static_cast<std::size_t>(rows) * row_bytes(tensor);
}

// --- contents -----------------------------------------------------------------------------------

std::uint64_t Expected::key(std::size_t tensor, int position) const {
  const auto number = static_cast<std::uint64_t>(call_.number);
  return mixed((number << 16) + (tensor << 8) +
               static_cast<std::uint64_t>(ranks_[static_cast<std::size_t>(position)]));
}

Values Expected::values(std::size_t tensor, int position, std::size_t begin,
                        std::size_t count) const {
  const std::uint64_t own = key(tensor, position);
  Values result(count);
  for (std::size_t i = 0; i < count; ++i) {
    result[i] = value_of(call_.type, call_.op, own, begin + i);
  }
  return result;
}

Bytes Expected::input(std::size_t tensor, int position) const {
  const auto elements = static_cast<std::size_t>(elements_of(input_shape(tensor, position)));
  Bytes bytes(elements * size_of(call_.type));
  if (!call_.reduces()) {
    fill(key(tensor, position), 0, bytes.data(), bytes.size());
    return bytes;
  }
  for (std::size_t at = 0; at < elements; at += kAtOnce) {
    const std::size_t count = std::min(kAtOnce, elements - at);
    const Bytes part = test::encode(call_.type, values(tensor, position, at, count));
    std::copy(part.begin(), part.end(),
              bytes.begin() + static_cast<std::ptrdiff_t>(at * size_of(call_.type)));
  }
  return bytes;
}

void Expected::reduce(std::size_t tensor, Bytes& result) const {
  const auto elements = static_cast<std::size_t>(elements_of(input_shape(tensor, 0)));
  const bool whole = call_.op == ReduceOp::adasum;  // its factors come from all elements
  const std::size_t at_once = whole ? std::max<std::size_t>(elements, 1) : kAtOnce;
  result.reserve(elements * size_of(call_.type));
  for (std::size_t at = 0; at < elements; at += at_once) {
    const std::size_t count = std::min(at_once, elements - at);
    std::vector<Values> inputs;
    for (std::size_t from = 0; from < set_size(); ++from) {
      if (!active_[from]) continue;
      inputs.push_back(values(tensor, static_cast<int>(from), at, count));
    }
    const Values values =
        whole ? test::adasum_of(std::move(inputs))
              : test::reduced(call_.type, call_.op, inputs, call_.prescale, call_.postscale);
    const Bytes part = test::encode(call_.type, values);
    result.insert(result.end(), part.begin(), part.end());
  }
}

// --- results ------------------------------------------------------------------------------------

// Relative to the result's largest element.
double Expected::tolerance() const {
  if (call_.compression != Compression::none && call_.op == ReduceOp::average) return 1e-6;
  if (call_.op != ReduceOp::adasum) return 0;
  switch (call_.type) {
    case DataType::float16:
      return 1e-2;
    case DataType::bfloat16:
      return 6e-2;
    case DataType::float8_e4m3:
      return 0.3;
    case DataType::float8_e5m2:
      return 0.5;
    case DataType::float32:
      return 1e-4;
    default:
      return 1e-10;
  }
}

std::string Expected::compare_reduced(std::size_t tensor, int position, const std::byte* output) {
  Reduced& reduced = reduced_[tensor];
  std::call_once(reduced.once, [&] { reduce(tensor, reduced.bytes); });
  std::size_t begin = 0;
  std::size_t size = reduced.bytes.size();
  if (call_.kind == Kind::reducescatter) {
    const auto rows = runtime::reducescatter_rows(input_shape(tensor, position).front(),
                                                  static_cast<int>(set_size()), position);
    begin = static_cast<std::size_t>(rows.begin) * row_bytes(tensor);
    size = static_cast<std::size_t>(rows.count) * row_bytes(tensor);
  }
  const std::byte* const wanted = reduced.bytes.data() + begin;
  if (size == 0 || std::memcmp(wanted, output, size) == 0) return {};

  // Zeros of both signs are equal although their bytes differ.
  const Values right = test::decode(call_.type, {wanted, wanted + size});
  const Values found = test::decode(call_.type, {output, output + size});
  double largest = 0;
  for (const double value : right) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < right.size(); ++i) {
    if (std::abs(found[i] - right[i]) <= tolerance() * largest) continue;
    return difference(i, right.size(), cat(found[i]), cat(right[i]));
  }
  return {};
}

std::string Expected::compare_moved(std::size_t tensor, int position,
                                    const std::byte* output) const {
  Bytes wanted;
  const auto append = [&](int from, std::size_t begin, std::size_t count) {
    wanted.resize(wanted.size() + count);
    fill(key(tensor, from), begin, wanted.data() + wanted.size() - count, count);
  };
  for (int from = 0; from < static_cast<int>(set_size()); ++from) {
    const auto rows = call_.tensors[tensor].rows[static_cast<std::size_t>(from)];
    if (call_.kind == Kind::allgather && is_active(from)) {
      append(from, 0, static_cast<std::size_t>(rows) * row_bytes(tensor));
    } else if (call_.kind == Kind::broadcast && from == call_.root) {
      append(
          from, 0,
          static_cast<std::size_t>(elements_of(input_shape(tensor, from))) * size_of(call_.type));
    } else if (call_.kind == Kind::alltoall) {
      std::int64_t before = 0;
      for (int to = 0; to < position; ++to) before += split(tensor, from, to);
      append(from, static_cast<std::size_t>(before) * row_bytes(tensor),
             static_cast<std::size_t>(split(tensor, from, position)) * row_bytes(tensor));
    }
  }
  if (wanted.empty() || std::memcmp(wanted.data(), output, wanted.size()) == 0) return {};

  const auto [right, found] = std::mismatch(wanted.begin(), wanted.end(), output);
  const auto at = static_cast<std::size_t>(right - wanted.begin());
  const auto wrong = std::inner_product(wanted.begin(), wanted.end(), output, std::size_t{0},
                                        std::plus<>(), std::not_equal_to<>());
  return cat("byte ", at, " of ", wanted.size(), " is ", static_cast<int>(*found), ", not ",
             static_cast<int>(*right), "; ", wrong, " bytes are wrong");
}

std::string Expected::complaint(std::size_t tensor, int position, const std::byte* output) {
  if (call_.kind == Kind::barrier) return {};
  return call_.reduces() ? compare_reduced(tensor, position, output)
                         : compare_moved(tensor, position, output);
}

}  // namespace hvd::fuzz
