#include "runtime/arithmetic.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

namespace hvd::runtime {

float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1FU;
  const std::uint32_t mantissa = half & 0x3FFU;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000U | (mantissa << 13));
  if (exponent != 0) {
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  }
  const float subnormal = static_cast<float>(mantissa) * 0x1p-24F;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(subnormal) | sign);
}

std::uint16_t float_to_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return sign | 0x7E00U;   // not a number stays one
  if (magnitude >= 0x477FF000U) return sign | 0x7C00U;  // rounds to 65536 or more: infinity
  if (magnitude < 0x38800000U) {                        // subnormal or zero
    // Adding 0.5 puts the last bit of a half's subnormal at the last bit of the sum: the
    // processor rounds.
    const float rounded = std::bit_cast<float>(magnitude) + 0.5F;
    return sign | static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(rounded) - 0x3F000000U);
  }
  const std::uint32_t odd = (magnitude >> 13) & 1U;
  return sign | static_cast<std::uint16_t>((magnitude + 0xFFFU + odd - 0x38000000U) >> 13);
}

float bfloat16_to_float(std::uint16_t value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
}

std::uint16_t float_to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

namespace {

// An element type: how it lies in memory and what it is computed in.
template <typename T>
struct Plain {
  using Stored = T;
  using Computed = T;
  static Computed load(Stored value) { return value; }
  static Stored store(Computed value) { return value; }
};
struct Half {
  using Stored = std::uint16_t;
  using Computed = float;
  static float load(Stored value) { return half_to_float(value); }
  static Stored store(float value) { return float_to_half(value); }
};
struct BFloat16 {
  using Stored = std::uint16_t;
  using Computed = float;
  static float load(Stored value) { return bfloat16_to_float(value); }
  static Stored store(float value) { return float_to_bfloat16(value); }
};
struct Boolean {
  using Stored = std::uint8_t;
  using Computed = std::uint8_t;
  static Computed load(Stored value) { return value != 0 ? 1 : 0; }
  static Stored store(Computed value) { return value; }
};

// Signed overflow wraps, as it would in unsigned numbers, instead of being undefined.
template <typename T>
using Wrapping =
    std::conditional_t<std::is_integral_v<T>,
                       std::conditional_t<(sizeof(T) < 8), std::uint32_t, std::uint64_t>, T>;

struct SumOf {
  template <typename T>
  static T apply(T a, T b) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  }
};
struct ProductOf {
  template <typename T>
  static T apply(T a, T b) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  }
};
// What is no number stays visible, whichever side it stands on.
struct MinOf {
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) return (a < b || a != a) ? a : b;
    return a < b ? a : b;
  }
};
struct MaxOf {
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) return (a > b || a != a) ? a : b;
    return a > b ? a : b;
  }
};

template <typename Type, typename Op>
void reduce(void* out, const void* a, const void* b, std::size_t count) {
  using Stored = typename Type::Stored;
  auto* const to = static_cast<Stored*>(out);
  const auto* const x = static_cast<const Stored*>(a);
  const auto* const y = static_cast<const Stored*>(b);
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = Type::store(Op::apply(Type::load(x[i]), Type::load(y[i])));
  }
}

template <typename Type>
ReduceFunction function_of(ReduceOp op) {
  constexpr bool kBoolean = std::is_same_v<Type, Boolean>;
  switch (op) {
    case ReduceOp::average:
      return kBoolean ? &reduce<Type, MinOf> : &reduce<Type, SumOf>;
    case ReduceOp::sum:
      return kBoolean ? &reduce<Type, MaxOf> : &reduce<Type, SumOf>;
    case ReduceOp::min:
      return &reduce<Type, MinOf>;
    case ReduceOp::max:
      return &reduce<Type, MaxOf>;
    case ReduceOp::product:
      return kBoolean ? &reduce<Type, MinOf> : &reduce<Type, ProductOf>;
    case ReduceOp::adasum:
      break;
  }
  return nullptr;
}

template <typename T>
T clamped(double value) {
  constexpr auto kMin = std::numeric_limits<T>::min();
  constexpr auto kMax = std::numeric_limits<T>::max();
  if (std::isnan(value)) return 0;
  if (value <= static_cast<double>(kMin)) return kMin;
  // The largest 64-bit number is not a double; the next double above it is.
  if (value >= static_cast<double>(kMax)) return kMax;
  return static_cast<T>(value);
}

template <typename Type>
void scale_all(void* data, std::size_t count, double factor) {
  using Stored = typename Type::Stored;
  using Computed = typename Type::Computed;
  auto* const elements = static_cast<Stored*>(data);
  for (std::size_t i = 0; i < count; ++i) {
    if constexpr (std::is_same_v<Type, Boolean>) {
      elements[i] = elements[i] != 0 && factor != 0 ? 1 : 0;
    } else if constexpr (std::is_floating_point_v<Computed>) {
      elements[i] = Type::store(Type::load(elements[i]) * static_cast<Computed>(factor));
    } else {
      elements[i] = clamped<Stored>(static_cast<double>(elements[i]) * factor);
    }
  }
}

template <typename Type>
void divide_all(void* data, std::size_t count, int ranks) {
  using Computed = typename Type::Computed;
  auto* const elements = static_cast<typename Type::Stored*>(data);
  for (std::size_t i = 0; i < count; ++i) {
    if constexpr (std::is_floating_point_v<Computed>) {
      elements[i] = Type::store(Type::load(elements[i]) / static_cast<Computed>(ranks));
    } else {
      elements[i] = static_cast<Computed>(static_cast<std::int64_t>(elements[i]) / ranks);
    }
  }
}

// Calls `visit` with the element type that stands for `type`.
template <typename Visitor>
auto with_type(DataType type, Visitor visit) {
  switch (type) {
    case DataType::boolean:
      return visit(Boolean());
    case DataType::uint8:
      return visit(Plain<std::uint8_t>());
    case DataType::int8:
      return visit(Plain<std::int8_t>());
    case DataType::uint16:
      return visit(Plain<std::uint16_t>());
    case DataType::int16:
      return visit(Plain<std::int16_t>());
    case DataType::int32:
      return visit(Plain<std::int32_t>());
    case DataType::int64:
      return visit(Plain<std::int64_t>());
    case DataType::float16:
      return visit(Half());
    case DataType::bfloat16:
      return visit(BFloat16());
    case DataType::float32:
      return visit(Plain<float>());
    case DataType::float64:
      break;
  }
  return visit(Plain<double>());
}

}  // namespace

ReduceFunction reduce_function(DataType type, ReduceOp op) {
  return with_type(type, [&](auto element) { return function_of<decltype(element)>(op); });
}

void scale(DataType type, void* data, std::size_t count, double factor) {
  if (factor == 1.0) return;
  with_type(type, [&](auto element) { scale_all<decltype(element)>(data, count, factor); });
}

void divide(DataType type, void* data, std::size_t count, int ranks) {
  if (ranks == 1 || type == DataType::boolean) return;
  with_type(type, [&](auto element) { divide_all<decltype(element)>(data, count, ranks); });
}

}  // namespace hvd::runtime
