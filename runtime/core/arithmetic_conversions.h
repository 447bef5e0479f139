// Element types: how each lies in memory, in which type it is computed, and all conversions between
// the two: of one element, of a block of 16-bit ones, and of whole arrays for the types that have
// another wire type (wire_type() in arithmetic.h). Only arithmetic_kernels.h includes this file,
// and its rules apply here: it is compiled once for each kind of processor, so internal linkage,
// and no function of the standard library. Pure; safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <hvd/float8.h>

#ifdef __F16C__
#include <immintrin.h>
#endif

namespace hvd::runtime {
namespace {

// Elements that are converted at a time, in a buffer on the stack.
constexpr std::size_t kBlock = 512;

// Arrays are identical or do not overlap, so no iteration depends on another one.
#ifdef __clang__
#define HVD_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define HVD_INDEPENDENT _Pragma("GCC ivdep")
#endif

// --- float16 and bfloat16 -----------------------------------------------------------------------

[[maybe_unused]] inline float from_half(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  const std::uint32_t magnitude = half & 0x7FFFU;
  // A multiplication corrects the exponent, for subnormals as well.
  const float scaled =
      __builtin_bit_cast(float, magnitude << 13) * __builtin_bit_cast(float, 0x77800000U);
  const std::uint32_t finite = __builtin_bit_cast(std::uint32_t, scaled);
  const std::uint32_t special =
      0x7F800000U | (magnitude << 13) | (magnitude > 0x7C00U ? 0x400000U : 0U);
  return __builtin_bit_cast(float, sign | (magnitude >= 0x7C00U ? special : finite));
}

[[maybe_unused]] inline std::uint16_t to_half(float value) {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  // Adding 0.5 aligns the last bit of a half's subnormal with the last bit of the sum, so the
  // processor rounds. Only small values need it; larger ones are masked out, because the sum could
  // raise floating-point exceptions.
  const std::uint32_t small = magnitude < 0x38800000U ? magnitude : 0U;
  const float rounded = __builtin_bit_cast(float, small) + 0.5F;
  const std::uint32_t subnormal = __builtin_bit_cast(std::uint32_t, rounded) - 0x3F000000U;
  const std::uint32_t normal = (magnitude + 0xFFFU + ((magnitude >> 13) & 1U) - 0x38000000U) >> 13;
  std::uint32_t half = magnitude < 0x38800000U ? subnormal : normal;
  half = magnitude >= 0x477FF000U ? 0x7C00U : half;  // rounds to 65536 or more: infinity
  // NaN stays NaN, with its upper mantissa bits.
  half = magnitude > 0x7F800000U ? 0x7E00U | ((magnitude >> 13) & 0x3FFU) : half;
  return static_cast<std::uint16_t>(sign | half);
}

inline float from_bfloat16(std::uint16_t value) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(value) << 16);
}

inline std::uint16_t to_bfloat16(float value) {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x40U;
  return static_cast<std::uint16_t>((bits & 0x7FFFFFFFU) > 0x7F800000U ? quiet : rounded);
}

void load_halves(float* to, const std::uint16_t* from, std::size_t count) {
  std::size_t i = 0;
#ifdef __F16C__
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(to + i,
                     _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  }
#endif
  for (; i < count; ++i) to[i] = from_half(from[i]);
}

void store_halves(std::uint16_t* to, const float* from, std::size_t count) {
  std::size_t i = 0;
#ifdef __F16C__
  for (; i + 8 <= count; i += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
  }
#endif
  for (; i < count; ++i) to[i] = to_half(from[i]);
}

// --- element types ------------------------------------------------------------------------------

// How an element lies in memory (Stored) and in which type it is computed (Computed).
template <typename T>
struct Plain {
  using Stored = T;
  using Computed = T;
  static Computed load(Stored value) { return value; }
  static Stored store(Computed value) { return value; }
};
struct Boolean {
  using Stored = std::uint8_t;
  using Computed = std::uint8_t;
  static Computed load(Stored value) { return value != 0 ? 1 : 0; }
  static Stored store(Computed value) { return value; }
};
struct BFloat16 {
  using Stored = std::uint16_t;
  using Computed = float;
  static float load(Stored value) { return from_bfloat16(value); }
  static Stored store(float value) { return to_bfloat16(value); }
};
template <hvd::detail::Float8Format kFormat>
struct Float8 {
  using Stored = std::uint8_t;
  using Computed = float;
  static float load(Stored value) { return hvd::detail::float8_value<kFormat>(value); }
  static Stored store(float value) { return hvd::detail::float8_bits<kFormat>(value); }
};
using E4m3 = Float8<hvd::detail::kE4m3>;
using E5m2 = Float8<hvd::detail::kE5m2>;
struct Half {  // converted in blocks only
  using Stored = std::uint16_t;
  using Computed = float;
};

// --- arrays -------------------------------------------------------------------------------------

// Rounds to odd, so that rounding once more, to 16 bits, gives the same as rounding at once would
// have given: the last bit records whether something was lost.
inline float to_float_odd(double value) {
  const auto nearest = static_cast<float>(value);
  const auto bits = __builtin_bit_cast(std::uint32_t, nearest);
  const auto back = static_cast<double>(nearest);
  if (back == value || value != value) return nearest;
  if ((bits & 1U) != 0) return nearest;
  // An even neighbour was chosen: the odd one lies on the other side of the value.
  const bool away = (back < value) == (value > 0);
  return __builtin_bit_cast(float, away ? bits + 1 : bits - 1);
}

template <bool kToHalf>
void store_block(std::uint16_t* to, const float* from, std::size_t count) {
  if constexpr (kToHalf) {
    store_halves(to, from, count);
  } else {
    for (std::size_t i = 0; i < count; ++i) to[i] = to_bfloat16(from[i]);
  }
}

template <bool kFromHalf>
void load_block(float* to, const std::uint16_t* from, std::size_t count) {
  if constexpr (kFromHalf) {
    load_halves(to, from, count);
  } else {
    for (std::size_t i = 0; i < count; ++i) to[i] = from_bfloat16(from[i]);
  }
}

template <typename T, bool kToHalf>
void compress(const void* in, void* out, std::size_t count, double factor) {
  const auto* const from = static_cast<const T*>(in);
  auto* const to = static_cast<std::uint16_t*>(out);
  const auto by = static_cast<T>(factor);
  float block[kBlock];
  for (std::size_t at = 0; at < count; at += kBlock) {
    const std::size_t n = count - at < kBlock ? count - at : kBlock;
    for (std::size_t i = 0; i < n; ++i) {
      if constexpr (std::is_same_v<T, double>) {
        block[i] = to_float_odd(from[at + i] * by);
      } else {
        block[i] = from[at + i] * by;
      }
    }
    store_block<kToHalf>(to + at, block, n);
  }
}

template <typename T, bool kFromHalf>
void expand(const void* in, void* out, std::size_t count, double factor) {
  const auto* const from = static_cast<const std::uint16_t*>(in);
  auto* const to = static_cast<T*>(out);
  const auto by = static_cast<T>(factor);
  float block[kBlock];
  for (std::size_t at = 0; at < count; at += kBlock) {
    const std::size_t n = count - at < kBlock ? count - at : kBlock;
    load_block<kFromHalf>(block, from + at, n);
    for (std::size_t i = 0; i < n; ++i) to[at + i] = static_cast<T>(block[i]) * by;
  }
}

template <typename Type>
void widen(const void* in, void* out, std::size_t count, double factor) {
  const auto* const from = static_cast<const typename Type::Stored*>(in);
  auto* const to = static_cast<float*>(out);
  const auto by = static_cast<float>(factor);
  HVD_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) to[i] = Type::load(from[i]) * by;
}

template <typename Type>
void narrow(const void* in, void* out, std::size_t count, double factor) {
  const auto* const from = static_cast<const float*>(in);
  auto* const to = static_cast<typename Type::Stored*>(out);
  const auto by = static_cast<float>(factor);
  HVD_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) to[i] = Type::store(from[i] * by);
}

}  // namespace
}  // namespace hvd::runtime
