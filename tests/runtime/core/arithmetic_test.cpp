#include "runtime/core/arithmetic.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

namespace hvd::runtime {
namespace {

TEST(Arithmetic, EveryHalfSurvivesTheWayToFloatAndBack) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = half_to_float(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(half_to_float(float_to_half(value))));
    } else {
      EXPECT_EQ(float_to_half(value), half) << bits;
    }
  }
}

TEST(Arithmetic, HalvesAreWhatTheStandardSays) {
  EXPECT_EQ(half_to_float(0x3C00), 1.0F);
  EXPECT_EQ(half_to_float(0xC000), -2.0F);
  EXPECT_EQ(half_to_float(0x7BFF), 65504.0F);
  EXPECT_EQ(half_to_float(0x0001), 0x1p-24F);
  EXPECT_EQ(half_to_float(0x0400), 0x1p-14F);
  EXPECT_EQ(half_to_float(0x7C00), std::numeric_limits<float>::infinity());
  EXPECT_EQ(float_to_half(65519.0F), 0x7BFF);
  EXPECT_EQ(float_to_half(65520.0F), 0x7C00);
  EXPECT_EQ(float_to_half(1.0F + 0x1p-11F), 0x3C00);  // a tie goes to the even one
  EXPECT_EQ(float_to_half(1.0F + 3 * 0x1p-11F), 0x3C02);
  EXPECT_EQ(float_to_half(0x1p-25F), 0x0000);
  EXPECT_EQ(float_to_half(std::nextafter(0x1p-25F, 1.0F)), 0x0001);
  EXPECT_EQ(float_to_half(-0.0F), 0x8000);
}

TEST(Arithmetic, EveryBfloat16SurvivesTheWayToFloatAndBack) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto stored = static_cast<std::uint16_t>(bits);
    const float value = bfloat16_to_float(stored);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(bfloat16_to_float(float_to_bfloat16(value))));
    } else {
      EXPECT_EQ(float_to_bfloat16(value), stored) << bits;
    }
  }
  EXPECT_EQ(float_to_bfloat16(1.0F + 0x1p-8F), 0x3F80);  // tie to even
  EXPECT_EQ(float_to_bfloat16(1.0F + 3 * 0x1p-8F), 0x3F82);
}

template <typename T>
T reduced(DataType type, ReduceOp op, T a, T b) {
  T out{};
  reduce_function(type, op)(&out, &a, &b, 1);
  return out;
}

TEST(Arithmetic, IntegersWrapAroundInsteadOfBeingUndefined) {
  EXPECT_EQ(reduced<std::int8_t>(DataType::int8, ReduceOp::sum, 127, 1), -128);
  EXPECT_EQ(reduced<std::int16_t>(DataType::int16, ReduceOp::product, 256, 256), 0);
  EXPECT_EQ(reduced<std::int32_t>(DataType::int32, ReduceOp::sum, 2147483647, 1), -2147483647 - 1);
  EXPECT_EQ(reduced<std::uint16_t>(DataType::uint16, ReduceOp::product, 65535, 65535), 1);
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(reduced<std::int64_t>(DataType::int64, ReduceOp::sum, kMax, 1), -kMax - 1);
}

TEST(Arithmetic, NanPropagatesFromEitherOperand) {
  const float nan = std::nanf("");
  for (const auto op : {ReduceOp::min, ReduceOp::max, ReduceOp::sum, ReduceOp::product}) {
    EXPECT_TRUE(std::isnan(reduced<float>(DataType::float32, op, nan, 1.0F)));
    EXPECT_TRUE(std::isnan(reduced<float>(DataType::float32, op, 1.0F, nan)));
  }
}

TEST(Arithmetic, BooleansAreAnyOrAll) {
  for (std::uint8_t a : {0, 1}) {
    for (std::uint8_t b : {0, 1}) {
      const std::uint8_t any = a | b;
      const std::uint8_t all = a & b;
      EXPECT_EQ(reduced(DataType::boolean, ReduceOp::sum, a, b), any);
      EXPECT_EQ(reduced(DataType::boolean, ReduceOp::max, a, b), any);
      EXPECT_EQ(reduced(DataType::boolean, ReduceOp::average, a, b), all);
      EXPECT_EQ(reduced(DataType::boolean, ReduceOp::min, a, b), all);
      EXPECT_EQ(reduced(DataType::boolean, ReduceOp::product, a, b), all);
    }
  }
}

TEST(Arithmetic, ScaledIntegersAreTruncatedAndStayInTheirRange) {
  std::vector<std::int8_t> small{100, -100, 3, -3};
  scale(DataType::int8, small.data(), small.size(), 1.5);
  EXPECT_EQ(small, (std::vector<std::int8_t>{127, -128, 4, -4}));
  std::int64_t large = std::numeric_limits<std::int64_t>::max();
  scale(DataType::int64, &large, 1, 2.0);
  EXPECT_EQ(large, std::numeric_limits<std::int64_t>::max());
}

TEST(Arithmetic, AveragesOfLargeIntegersAreExact) {
  std::int64_t sum = 3 * ((std::int64_t{1} << 60) + 1) + 2;
  divide(DataType::int64, &sum, 1, 3);
  EXPECT_EQ(sum, (std::int64_t{1} << 60) + 1);
  std::int32_t negative = -7;
  divide(DataType::int32, &negative, 1, 2);
  EXPECT_EQ(negative, -3);
}

}  // namespace
}  // namespace hvd::runtime
