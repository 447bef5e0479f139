// The 8-bit floating point types of the Open Compute Project ("OCP 8-bit floating point", OFP8):
// storage, and conversion to and from float. They do no arithmetic of their own; hvd reduces them
// in float32.
//
// E4M3 has 3 bits of mantissa, reaches 448 and has no infinities: what both its largest codes mean
// is not a number. E5M2 has 2 bits, reaches 57344, and has infinities and what is not a number.
// Rounding is to nearest, ties to even, and saturates, as the specification calls it: what is
// larger than the largest finite number, infinities as well, becomes that number. Not-a-number
// stays one.
#pragma once

#include <cstdint>

namespace hvd {

namespace detail {

// Where the bits of a format are, and which codes are special.
struct Float8Format {
  int mantissa;
  int bias;
  std::uint32_t largest;   // finite code without its sign
  std::uint32_t infinity;  // code without its sign; 0x80: there is none
};
inline constexpr Float8Format kE4m3{3, 7, 0x7E, 0x80};
inline constexpr Float8Format kE5m2{2, 15, 0x7B, 0x7C};
inline constexpr std::uint32_t kFloat8NaN = 0x7F;

// Always inline: loops that are compiled for several kinds of processors share no copy of these.
template <Float8Format kFormat>
[[gnu::always_inline]] constexpr std::uint8_t float8_bits(float value) {
  constexpr int kShift = 23 - kFormat.mantissa;
  constexpr auto kRebias = static_cast<std::uint32_t>(127 - kFormat.bias) << 23;
  constexpr std::uint32_t kLeastNormal = kRebias + (1U << 23);
  // A float whose last bit is worth as much as that of a subnormal: the processor rounds.
  constexpr std::uint32_t kAligner = static_cast<std::uint32_t>(128 - kFormat.bias + kShift) << 23;
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t sign = (bits >> 24) & 0x80U;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  const std::uint32_t small = magnitude < kLeastNormal ? magnitude : 0U;
  const float sum = __builtin_bit_cast(float, small) + __builtin_bit_cast(float, kAligner);
  const std::uint32_t subnormal = __builtin_bit_cast(std::uint32_t, sum) - kAligner;
  const std::uint32_t half = (1U << (kShift - 1)) - 1U + ((magnitude >> kShift) & 1U);
  const std::uint32_t normal = (magnitude + half - kRebias) >> kShift;
  std::uint32_t code = magnitude < kLeastNormal ? subnormal : normal;
  code = magnitude >= kLeastNormal && normal > kFormat.largest ? kFormat.largest : code;
  code = magnitude > 0x7F800000U ? kFloat8NaN : code;
  return static_cast<std::uint8_t>(sign | code);
}

template <Float8Format kFormat>
[[gnu::always_inline]] constexpr float float8_value(std::uint8_t bits) {
  // From the exponents of 8 bits to those of a float; right for subnormals, too.
  constexpr auto kScale = static_cast<std::uint32_t>(254 - kFormat.bias) << 23;
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x80U) << 24;
  const std::uint32_t magnitude = bits & 0x7FU;
  const float scaled = __builtin_bit_cast(float, magnitude << (23 - kFormat.mantissa)) *
                       __builtin_bit_cast(float, kScale);
  std::uint32_t value = __builtin_bit_cast(std::uint32_t, scaled);
  value = magnitude > kFormat.largest ? 0x7FC00000U : value;
  value = magnitude == kFormat.infinity ? 0x7F800000U : value;
  return __builtin_bit_cast(float, sign | value);
}

}  // namespace detail

struct float8_e4m3 {
  std::uint8_t bits = 0;
  constexpr float8_e4m3() = default;
  constexpr explicit float8_e4m3(float value) : bits(detail::float8_bits<detail::kE4m3>(value)) {}
  constexpr explicit operator float() const { return detail::float8_value<detail::kE4m3>(bits); }
  friend constexpr bool operator==(const float8_e4m3&,
                                   const float8_e4m3&) = default;  // of the bits
};

struct float8_e5m2 {
  std::uint8_t bits = 0;
  constexpr float8_e5m2() = default;
  constexpr explicit float8_e5m2(float value) : bits(detail::float8_bits<detail::kE5m2>(value)) {}
  constexpr explicit operator float() const { return detail::float8_value<detail::kE5m2>(bits); }
  friend constexpr bool operator==(const float8_e5m2&,
                                   const float8_e5m2&) = default;  // of the bits
};

}  // namespace hvd
