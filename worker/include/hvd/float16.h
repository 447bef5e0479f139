// The 16-bit floating point types, for which C++20 has no names: storage, and conversion to and
// from float. They do no arithmetic of their own; hvd reduces them in float32, rounding each step.
#pragma once

#include <bit>
#include <cstdint>

namespace hvd {

namespace detail {

// IEEE 754 binary16, rounded to nearest, ties to even; not-a-number stays one.
constexpr std::uint16_t half_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) {
    return static_cast<std::uint16_t>(sign | 0x7E00U | ((magnitude >> 13) & 0x1FFU));
  }
  if (magnitude >= 0x477FF000U) return static_cast<std::uint16_t>(sign | 0x7C00U);
  if (magnitude < 0x38800000U) {
    // Subnormal: the sum with 0.5 is rounded at the last bit of the half.
    const float sum = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(sum) - 0x3F000000U));
  }
  const std::uint32_t rounded = magnitude + 0xFFFU + ((magnitude >> 13) & 1U);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000U) >> 13));
}

constexpr float half_value(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
  const std::uint32_t magnitude = half & 0x7FFFU;
  if (magnitude >= 0x7C00U) {
    return std::bit_cast<float>(sign | 0x7F800000U | ((magnitude & 0x3FFU) << 13));
  }
  // Scaled from the exponents of a half to those of a float; right for subnormals, too.
  constexpr float kScale = 0x1p112F;
  const float value = std::bit_cast<float>(magnitude << 13) * kScale;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
}

// The upper half of a float, rounded to nearest, ties to even; not-a-number stays one.
constexpr std::uint16_t bfloat16_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

constexpr float bfloat16_value(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

}  // namespace detail

struct float16 {
  std::uint16_t bits = 0;
  constexpr float16() = default;
  constexpr explicit float16(float value) : bits(detail::half_bits(value)) {}
  constexpr explicit operator float() const { return detail::half_value(bits); }
  friend constexpr bool operator==(const float16&, const float16&) = default;  // of the bits
};

struct bfloat16 {
  std::uint16_t bits = 0;
  constexpr bfloat16() = default;
  constexpr explicit bfloat16(float value) : bits(detail::bfloat16_bits(value)) {}
  constexpr explicit operator float() const { return detail::bfloat16_value(bits); }
  friend constexpr bool operator==(const bfloat16&, const bfloat16&) = default;  // of the bits
};

}  // namespace hvd
