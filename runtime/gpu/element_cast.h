// The effect of an ElementCast on one element, on a GPU (runtime/nccl/cast.cu) and, for the tests,
// on the host: the same code for both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <hvd/float8.h>
#include <hvd/types.h>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#define HVD_HOST_AND_DEVICE __host__ __device__
#else
#include "runtime/core/arithmetic.h"
#define HVD_HOST_AND_DEVICE
#endif

namespace hvd::runtime::gpu {

// Elements that C++ has no type for.
struct Boolean {
  std::uint8_t value;
};
struct Half {
  std::uint16_t bits;
};
struct Brain {
  std::uint16_t bits;
};

struct E4m3 {
  std::uint8_t bits;
};
struct E5m2 {
  std::uint8_t bits;
};

template <typename T>
inline constexpr bool kIsFloat8 = std::is_same_v<T, E4m3> || std::is_same_v<T, E5m2>;
template <typename T>
inline constexpr bool kIsFloating = std::is_floating_point_v<T> || std::is_same_v<T, Half> ||
                                    std::is_same_v<T, Brain> || kIsFloat8<T>;

#ifdef __CUDACC__
template <typename T>
inline constexpr __nv_fp8_interpretation_t kFloat8Kind =
    std::is_same_v<T, E4m3> ? __NV_E4M3 : __NV_E5M2;
#else
template <typename T>
inline constexpr hvd::detail::Float8Format kFloat8Format =
    std::is_same_v<T, E4m3> ? hvd::detail::kE4m3 : hvd::detail::kE5m2;
#endif

template <typename T>
HVD_HOST_AND_DEVICE inline auto load_element(T element) {
  if constexpr (std::is_same_v<T, Boolean>) {
    return static_cast<std::int64_t>(element.value != 0);
  } else if constexpr (std::is_same_v<T, Half>) {
#ifdef __CUDACC__
    return __half2float(__ushort_as_half(element.bits));
#else
    return half_to_float(element.bits);
#endif
  } else if constexpr (std::is_same_v<T, Brain>) {
#ifdef __CUDACC__
    return __bfloat162float(__ushort_as_bfloat16(element.bits));
#else
    return bfloat16_to_float(element.bits);
#endif
  } else if constexpr (kIsFloat8<T>) {
#ifdef __CUDACC__
    return __half2float(__half(__nv_cvt_fp8_to_halfraw(element.bits, kFloat8Kind<T>)));
#else
    return hvd::detail::float8_value<kFloat8Format<T>>(element.bits);
#endif
  } else if constexpr (std::is_floating_point_v<T>) {
    return element;
  } else {
    return static_cast<std::int64_t>(element);
  }
}

template <typename T, typename Value>
HVD_HOST_AND_DEVICE inline T store_element(Value value) {
  if constexpr (std::is_same_v<T, Boolean>) {
    return Boolean{static_cast<std::uint8_t>(value != 0)};
  } else if constexpr (std::is_same_v<T, Half>) {
#ifdef __CUDACC__
    if constexpr (std::is_same_v<Value, double>) return {__half_as_ushort(__double2half(value))};
    return {__half_as_ushort(__float2half_rn(static_cast<float>(value)))};
#else
    return {float_to_half(static_cast<float>(value))};
#endif
  } else if constexpr (std::is_same_v<T, Brain>) {
#ifdef __CUDACC__
    if constexpr (std::is_same_v<Value, double>) {
      return {__bfloat16_as_ushort(__double2bfloat16(value))};
    }
    return {__bfloat16_as_ushort(__float2bfloat16_rn(static_cast<float>(value)))};
#else
    return {float_to_bfloat16(static_cast<float>(value))};
#endif
  } else if constexpr (kIsFloat8<T>) {
#ifdef __CUDACC__
    return {__nv_cvt_float_to_fp8(static_cast<float>(value), __NV_SATFINITE, kFloat8Kind<T>)};
#else
    return {hvd::detail::float8_bits<kFloat8Format<T>>(static_cast<float>(value))};
#endif
  } else {
    return static_cast<T>(value);
  }
}

// Into the range of Integer, toward zero; what is not a number becomes 0.
template <typename Integer>
HVD_HOST_AND_DEVICE inline std::int64_t clamp_to(double value) {
  constexpr auto kLow = std::numeric_limits<Integer>::min();
  constexpr auto kHigh = std::numeric_limits<Integer>::max();
  if (!(value > static_cast<double>(kLow))) {
    return value <= static_cast<double>(kLow) ? static_cast<std::int64_t>(kLow) : 0;
  }
  if (value >= static_cast<double>(kHigh)) return static_cast<std::int64_t>(kHigh);
  return static_cast<std::int64_t>(value);
}

template <typename From, typename To>
HVD_HOST_AND_DEVICE inline To cast_element(From element, double factor, int divisor) {
  if constexpr (kIsFloating<From>) {
    using Computed = std::conditional_t<std::is_same_v<From, double> || std::is_same_v<To, double>,
                                        double, float>;
    auto value = static_cast<Computed>(load_element(element));
    if (divisor != 1) value /= static_cast<Computed>(divisor);
    if (factor != 1.0) value *= static_cast<Computed>(factor);
    return store_element<To>(value);
  } else if constexpr (std::is_same_v<From, Boolean> || std::is_same_v<To, Boolean>) {
    std::int64_t value = load_element(element) != 0;
    if (factor == 0.0) value = 0;
    return store_element<To>(value);
  } else {
    using Narrow = std::conditional_t<(sizeof(From) < sizeof(To)), From, To>;
    auto value = static_cast<std::int64_t>(static_cast<Narrow>(element));
    // (The smallest number has no positive one to become: -1 is no divisor here.)
    if (divisor != 1) value /= divisor;
    if (factor != 1.0) value = clamp_to<Narrow>(static_cast<double>(value) * factor);
    return store_element<To>(value);
  }
}

// Calls f(From(), To()) with the C++ types of the two; false if nothing passes from one to the
// other.
template <typename F>
bool with_types(DataType from, DataType to, F f) {
  const auto pair = [&](DataType a, DataType b) { return from == a && to == b; };
#define HVD_PASSES(from_type, from_cpp, to_type, to_cpp) \
  if (pair(DataType::from_type, DataType::to_type)) {    \
    f(from_cpp(), to_cpp());                             \
    return true;                                         \
  }
#define HVD_PASSES_BOTH_WAYS(from_type, from_cpp, to_type, to_cpp) \
  HVD_PASSES(from_type, from_cpp, to_type, to_cpp)                 \
  HVD_PASSES(to_type, to_cpp, from_type, from_cpp)
  HVD_PASSES(boolean, Boolean, boolean, Boolean)
  HVD_PASSES(uint8, std::uint8_t, uint8, std::uint8_t)
  HVD_PASSES(int8, std::int8_t, int8, std::int8_t)
  HVD_PASSES(uint16, std::uint16_t, uint16, std::uint16_t)
  HVD_PASSES(int16, std::int16_t, int16, std::int16_t)
  HVD_PASSES(int32, std::int32_t, int32, std::int32_t)
  HVD_PASSES(int64, std::int64_t, int64, std::int64_t)
  HVD_PASSES(float16, Half, float16, Half)
  HVD_PASSES(bfloat16, Brain, bfloat16, Brain)
  HVD_PASSES(float32, float, float32, float)
  HVD_PASSES(float64, double, float64, double)
  HVD_PASSES(float8_e4m3, E4m3, float8_e4m3, E4m3)
  HVD_PASSES(float8_e5m2, E5m2, float8_e5m2, E5m2)
  HVD_PASSES_BOTH_WAYS(boolean, Boolean, uint8, std::uint8_t)
  HVD_PASSES_BOTH_WAYS(uint16, std::uint16_t, int32, std::int32_t)
  HVD_PASSES_BOTH_WAYS(int16, std::int16_t, int32, std::int32_t)
  HVD_PASSES_BOTH_WAYS(float32, float, float16, Half)
  HVD_PASSES_BOTH_WAYS(float32, float, bfloat16, Brain)
  HVD_PASSES_BOTH_WAYS(float64, double, float16, Half)
  HVD_PASSES_BOTH_WAYS(float64, double, bfloat16, Brain)
  HVD_PASSES_BOTH_WAYS(float8_e4m3, E4m3, float32, float)
  HVD_PASSES_BOTH_WAYS(float8_e5m2, E5m2, float32, float)
#undef HVD_PASSES_BOTH_WAYS
#undef HVD_PASSES
  return false;
}

}  // namespace hvd::runtime::gpu
