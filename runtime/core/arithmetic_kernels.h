// The loops of arithmetic.h over elements of any type, reductions, scaling, averages and Adasum,
// and the table of them all: compiled once for each kind of processor, included by
// arithmetic_portable.cpp and arithmetic_avx2.cpp only. Everything in here and in
// arithmetic_conversions.h has internal linkage or is always inlined, and no function of the
// standard library is called: of an inline function that was compiled for a new processor the
// linker might keep that copy for all callers. Pure; safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <type_traits>

#include <hvd/types.h>

#include "runtime/core/arithmetic_conversions.h"
#include "runtime/core/arithmetic_table.h"

namespace hvd::runtime {
namespace {

// --- operations ---------------------------------------------------------------------------------

template <typename T>
constexpr T lowest_of() {
  if constexpr (std::is_floating_point_v<T>) return -std::numeric_limits<T>::infinity();
  return std::numeric_limits<T>::lowest();
}
template <typename T>
constexpr T highest_of() {
  if constexpr (std::is_floating_point_v<T>) return std::numeric_limits<T>::infinity();
  return std::numeric_limits<T>::max();
}

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
  template <typename T>
  static constexpr T kNeutral = T(0);
};
struct ProductOf {
  template <typename T>
  static T apply(T a, T b) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  }
  template <typename T>
  static constexpr T kNeutral = T(1);
};
// NaN propagates from either operand.
struct MinOf {
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) return (a < b || a != a) ? a : b;
    return a < b ? a : b;
  }
  template <typename T>
  static constexpr T kNeutral = highest_of<T>();
};
struct MaxOf {
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) return (a > b || a != a) ? a : b;
    return a > b ? a : b;
  }
  template <typename T>
  static constexpr T kNeutral = lowest_of<T>();
};
struct AnyOf {
  template <typename T>
  static T apply(T a, T b) {
    return static_cast<T>(a | b);
  }
  template <typename T>
  static constexpr T kNeutral = T(0);
};
struct AllOf {
  template <typename T>
  static T apply(T a, T b) {
    return static_cast<T>(a & b);
  }
  template <typename T>
  static constexpr T kNeutral = T(1);
};

// --- loops --------------------------------------------------------------------------------------

// to[i] = f(x[i], y[i]), in the type that elements are computed in.
template <typename Type, typename F>
void map_pairs(void* out, const void* a, const void* b, std::size_t count, F f) {
  using Stored = typename Type::Stored;
  auto* const to = static_cast<Stored*>(out);
  const auto* const x = static_cast<const Stored*>(a);
  const auto* const y = static_cast<const Stored*>(b);
  if constexpr (std::is_same_v<Type, Half>) {
    float left[kBlock];
    float right[kBlock];
    for (std::size_t at = 0; at < count; at += kBlock) {
      const std::size_t n = count - at < kBlock ? count - at : kBlock;
      load_halves(left, x + at, n);
      load_halves(right, y + at, n);
      for (std::size_t i = 0; i < n; ++i) left[i] = f(left[i], right[i]);
      store_halves(to + at, left, n);
    }
  } else {
    HVD_INDEPENDENT
    for (std::size_t i = 0; i < count; ++i) {
      to[i] = Type::store(f(Type::load(x[i]), Type::load(y[i])));
    }
  }
}

// to[i] = f(x[i]).
template <typename Type, typename F>
void map_each(void* out, const void* in, std::size_t count, F f) {
  using Stored = typename Type::Stored;
  auto* const to = static_cast<Stored*>(out);
  const auto* const x = static_cast<const Stored*>(in);
  if constexpr (std::is_same_v<Type, Half>) {
    float block[kBlock];
    for (std::size_t at = 0; at < count; at += kBlock) {
      const std::size_t n = count - at < kBlock ? count - at : kBlock;
      load_halves(block, x + at, n);
      for (std::size_t i = 0; i < n; ++i) block[i] = f(block[i]);
      store_halves(to + at, block, n);
    }
  } else {
    HVD_INDEPENDENT
    for (std::size_t i = 0; i < count; ++i) to[i] = Type::store(f(Type::load(x[i])));
  }
}

template <typename Type, typename Op>
void reduce(void* out, const void* a, const void* b, std::size_t count) {
  using Computed = typename Type::Computed;
  map_pairs<Type>(out, a, b, count, [](Computed x, Computed y) { return Op::apply(x, y); });
}

template <typename Type, typename Op>
void fill(void* data, std::size_t count) {
  using Computed = typename Type::Computed;
  map_each<Type>(data, data, count, [](Computed) { return Op::template kNeutral<Computed>; });
}

template <typename T>
T clamped(double value) {
  constexpr T kMin = std::numeric_limits<T>::min();
  constexpr T kMax = std::numeric_limits<T>::max();
  if (value != value) return 0;
  if (value <= static_cast<double>(kMin)) return kMin;
  // The largest 64-bit number is not a double; the next double above it is.
  if (value >= static_cast<double>(kMax)) return kMax;
  return static_cast<T>(value);
}

template <typename Type>
void scale_all(void* out, const void* in, std::size_t count, double factor) {
  using Computed = typename Type::Computed;
  if constexpr (std::is_same_v<Type, Boolean>) {
    const std::uint8_t keep = factor != 0 ? 1 : 0;
    map_each<Type>(out, in, count, [=](Computed x) { return static_cast<Computed>(x & keep); });
  } else if constexpr (std::is_floating_point_v<Computed>) {
    const auto by = static_cast<Computed>(factor);
    map_each<Type>(out, in, count, [=](Computed x) { return x * by; });
  } else {
    map_each<Type>(out, in, count,
                   [=](Computed x) { return clamped<Computed>(static_cast<double>(x) * factor); });
  }
}

template <typename Type>
void divide_all(void* data, std::size_t count, int ranks) {
  using Computed = typename Type::Computed;
  if constexpr (std::is_same_v<Type, Boolean>) {
    return;
  } else if constexpr (std::is_floating_point_v<Computed>) {
    const auto by = static_cast<Computed>(ranks);
    map_each<Type>(data, data, count, [=](Computed x) { return x / by; });
  } else if constexpr (sizeof(Computed) < 8) {
    // Exact in double: the quotient of two such numbers is never so close to the next integer that
    // a double could not tell them apart.
    const double by = ranks;
    map_each<Type>(data, data, count, [=](Computed x) {
      return static_cast<Computed>(static_cast<std::int32_t>(static_cast<double>(x) / by));
    });
  } else {
    map_each<Type>(data, data, count, [=](Computed x) { return x / ranks; });
  }
}

// --- adasum -------------------------------------------------------------------------------------

template <typename Type>
void dot_products(const void* a, const void* b, std::size_t count, double* sums) {
  using Stored = typename Type::Stored;
  using Computed = typename Type::Computed;
  const auto* const x = static_cast<const Stored*>(a);
  const auto* const y = static_cast<const Stored*>(b);
  // Several partial sums: the order of additions is fixed, and the sums do not depend on each
  // other.
  constexpr std::size_t kLanes = 8;
  double ab[kLanes] = {};
  double aa[kLanes] = {};
  double bb[kLanes] = {};
  const auto add = [&](std::size_t lane, Computed left, Computed right) {
    const auto l = static_cast<double>(left);
    const auto r = static_cast<double>(right);
    ab[lane] += l * r;
    aa[lane] += l * l;
    bb[lane] += r * r;
  };
  Computed left[kBlock];
  Computed right[kBlock];
  for (std::size_t at = 0; at < count; at += kBlock) {
    const std::size_t n = count - at < kBlock ? count - at : kBlock;
    if constexpr (std::is_same_v<Type, Half>) {
      load_halves(left, x + at, n);
      load_halves(right, y + at, n);
    } else {
      for (std::size_t i = 0; i < n; ++i) left[i] = Type::load(x[at + i]);
      for (std::size_t i = 0; i < n; ++i) right[i] = Type::load(y[at + i]);
    }
    std::size_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) add(lane, left[i + lane], right[i + lane]);
    }
    for (; i < n; ++i) add(i % kLanes, left[i], right[i]);
  }
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    sums[0] += ab[lane];
    sums[1] += aa[lane];
    sums[2] += bb[lane];
  }
}

template <typename Type>
void combine_all(void* out, const void* a, double factor_a, const void* b, double factor_b,
                 std::size_t count) {
  using Computed = typename Type::Computed;
  // The factor of a vector that is very small beside the other may be out of range where its
  // product is not.
  constexpr double kMost = std::numeric_limits<Computed>::max();
  const auto is_out_of_range = [](double factor) { return factor > kMost || factor < -kMost; };
  if (is_out_of_range(factor_a) || is_out_of_range(factor_b)) {
    map_pairs<Type>(out, a, b, count, [=](Computed x, Computed y) {
      return static_cast<Computed>(factor_a * x + factor_b * y);
    });
    return;
  }
  const auto fa = static_cast<Computed>(factor_a);
  const auto fb = static_cast<Computed>(factor_b);
  map_pairs<Type>(out, a, b, count, [=](Computed x, Computed y) { return fa * x + fb * y; });
}

// --- the table ----------------------------------------------------------------------------------

template <typename Type>
constexpr TypeKernels kernels_of() {
  TypeKernels kernels;
  const auto set = [&](ReduceOp op, ReduceFunction function, FillFunction neutral) {
    kernels.reduce[static_cast<std::size_t>(op)] = function;
    kernels.fill[static_cast<std::size_t>(op)] = neutral;
  };
  if constexpr (std::is_same_v<Type, Boolean>) {
    for (const auto any : {ReduceOp::sum, ReduceOp::max}) {
      set(any, &reduce<Type, AnyOf>, &fill<Type, AnyOf>);
    }
    for (const auto all : {ReduceOp::average, ReduceOp::min, ReduceOp::product}) {
      set(all, &reduce<Type, AllOf>, &fill<Type, AllOf>);
    }
  } else {
    set(ReduceOp::average, &reduce<Type, SumOf>, &fill<Type, SumOf>);
    set(ReduceOp::sum, &reduce<Type, SumOf>, &fill<Type, SumOf>);
    set(ReduceOp::min, &reduce<Type, MinOf>, &fill<Type, MinOf>);
    set(ReduceOp::max, &reduce<Type, MaxOf>, &fill<Type, MaxOf>);
    set(ReduceOp::product, &reduce<Type, ProductOf>, &fill<Type, ProductOf>);
  }
  // The Adasum of x and 0 is x.
  set(ReduceOp::adasum, nullptr, kernels.fill[static_cast<std::size_t>(ReduceOp::sum)]);
  kernels.scale = &scale_all<Type>;
  kernels.divide = &divide_all<Type>;
  if constexpr (std::is_floating_point_v<typename Type::Computed>) {
    kernels.dot_products = &dot_products<Type>;
    kernels.combine = &combine_all<Type>;
  }
  if constexpr (std::is_same_v<Type, E4m3> || std::is_same_v<Type, E5m2>) {
    kernels.widen = &widen<Type>;
    kernels.narrow = &narrow<Type>;
  }
  return kernels;
}

constexpr Kernels all_kernels() {
  Kernels kernels{
      {kernels_of<Boolean>(), kernels_of<Plain<std::uint8_t>>(), kernels_of<Plain<std::int8_t>>(),
       kernels_of<Plain<std::uint16_t>>(), kernels_of<Plain<std::int16_t>>(),
       kernels_of<Plain<std::int32_t>>(), kernels_of<Plain<std::int64_t>>(), kernels_of<Half>(),
       kernels_of<BFloat16>(), kernels_of<Plain<float>>(), kernels_of<Plain<double>>(),
       kernels_of<E4m3>(), kernels_of<E5m2>()},
      {{&compress<float, true>, &compress<float, false>},
       {&compress<double, true>, &compress<double, false>}},
      {{&expand<float, true>, &expand<float, false>},
       {&expand<double, true>, &expand<double, false>}}};
  return kernels;
}

}  // namespace
}  // namespace hvd::runtime
