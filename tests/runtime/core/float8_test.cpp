// float8: every code, every pair of them, and every place between two of them, against what the
// specification says, in double.
#include <array>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include <hvd/float8.h>

#include "runtime/core/arithmetic.h"
#include "runtime/core/arithmetic_table.h"
#include "runtime/core/request.h"

namespace hvd::runtime {
namespace {

struct Format {
  DataType type;
  int mantissa;  // bits
  int bias;
  bool has_infinity;
  double largest;
};
constexpr Format kFormats[] = {{DataType::float8_e4m3, 3, 7, false, 448},
                               {DataType::float8_e5m2, 2, 15, true, 57344}};

double decoded(const Format& format, unsigned code) {
  const unsigned mantissa = code & ((1U << format.mantissa) - 1);
  const unsigned exponent = (code & 0x7FU) >> format.mantissa;
  const double sign = (code & 0x80U) != 0 ? -1 : 1;
  const unsigned highest = (1U << (7 - format.mantissa)) - 1;
  const double unit = std::ldexp(1.0, -format.mantissa);
  if (format.has_infinity && exponent == highest) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  }
  if (!format.has_infinity && (code & 0x7FU) == 0x7F) return std::nan("");
  if (exponent == 0) return sign * std::ldexp(mantissa * unit, 1 - format.bias);
  return sign * std::ldexp(1 + mantissa * unit, static_cast<int>(exponent) - format.bias);
}

using Meanings = std::array<double, 256>;
Meanings meanings_of(const Format& format) {
  Meanings meanings{};
  for (unsigned code = 0; code < 256; ++code) meanings[code] = decoded(format, code);
  return meanings;
}

// The finite code nearest to the value; of two the even one. By looking at all of them.
unsigned encoded(const Format& format, const Meanings& meanings, double value) {
  const unsigned sign = std::signbit(value) ? 0x80 : 0;
  const double magnitude = std::min(std::abs(value), format.largest);
  unsigned best = 0;
  for (unsigned code = 0; code < 0x7F; ++code) {
    const double one = meanings[code];
    if (!std::isfinite(one)) continue;
    const double error = std::abs(one - magnitude);
    const double least = std::abs(meanings[best] - magnitude);
    if (error < least || (error == least && code % 2 == 0)) best = code;
  }
  return sign | best;
}

float value_of(const Format& format, unsigned code) {
  const auto bits = static_cast<std::uint8_t>(code);
  return format.type == DataType::float8_e4m3 ? detail::float8_value<detail::kE4m3>(bits)
                                              : detail::float8_value<detail::kE5m2>(bits);
}
unsigned bits_of(const Format& format, float value) {
  return format.type == DataType::float8_e4m3 ? float8_e4m3(value).bits : float8_e5m2(value).bits;
}

TEST(Float8, EveryCodeMeansWhatTheSpecificationSaysAndSurvivesTheWayToFloatAndBack) {
  for (const auto& format : kFormats) {
    for (unsigned code = 0; code < 256; ++code) {
      const double wanted = decoded(format, code);
      const float value = value_of(format, code);
      if (std::isnan(wanted)) {
        EXPECT_TRUE(std::isnan(value)) << code;
        EXPECT_TRUE(std::isnan(decoded(format, bits_of(format, value)))) << code;
        continue;
      }
      EXPECT_EQ(value, wanted) << code;
      EXPECT_EQ(std::signbit(value), code >= 0x80) << code;
      // Infinities saturate.
      EXPECT_EQ(bits_of(format, value), std::isinf(value) ? code - 1 : code);
    }
  }
}

TEST(Float8, EveryFloatBetweenTwoCodesBecomesTheNearestAndOfTwoTheEvenOne) {
  for (const auto& format : kFormats) {
    for (unsigned code = 0; value_of(format, code) < format.largest; ++code) {
      const float low = value_of(format, code);
      const float tie = (low + value_of(format, code + 1)) / 2;
      EXPECT_EQ(bits_of(format, tie), code % 2 == 0 ? code : code + 1) << tie;
      EXPECT_EQ(bits_of(format, std::nextafter(tie, 0.0F)), code) << tie;
      EXPECT_EQ(bits_of(format, std::nextafter(tie, 1e9F)), code + 1) << tie;
      EXPECT_EQ(bits_of(format, -tie), 0x80U | (code % 2 == 0 ? code : code + 1)) << tie;
    }
    const auto largest = static_cast<float>(format.largest);
    const unsigned code = bits_of(format, largest);
    for (const float more : {std::nextafter(largest, 1e9F), 2 * largest, 1e38F,
                             std::numeric_limits<float>::infinity()}) {
      EXPECT_EQ(bits_of(format, more), code) << more;
      EXPECT_EQ(bits_of(format, -more), 0x80U | code) << more;
    }
    EXPECT_EQ(bits_of(format, std::numeric_limits<float>::denorm_min()), 0U);
  }
}

// Each loop of each kind of processor, through blocks of all lengths that 256 codes make.
TEST(Float8, EveryPairOfCodesIsAddedMultipliedAndComparedAsTheReferenceDoes) {
  std::vector<const Kernels*> processors{&kPortableKernels};
#ifdef HVD_AVX2_KERNELS
  if (has_avx2()) processors.push_back(&kAvx2Kernels);
#endif
  std::vector<std::uint8_t> left(65'536);
  std::vector<std::uint8_t> right(65'536);
  std::vector<std::uint8_t> out(65'536);
  for (std::size_t i = 0; i < left.size(); ++i) {
    left[i] = static_cast<std::uint8_t>(i / 256);
    right[i] = static_cast<std::uint8_t>(i % 256);
  }
  for (const auto& format : kFormats) {
    const auto meanings = meanings_of(format);
    for (const auto* const kernels : processors) {
      for (const auto op : {ReduceOp::sum, ReduceOp::product, ReduceOp::min, ReduceOp::max}) {
        kernels->types[static_cast<std::size_t>(format.type)].reduce[static_cast<std::size_t>(op)](
            out.data(), left.data(), right.data(), out.size());
        for (std::size_t i = 0; i < out.size(); ++i) {
          const double a = meanings[left[i]];
          const double b = meanings[right[i]];
          double wanted = std::nan("");
          if (!std::isnan(a) && !std::isnan(b)) {
            wanted = op == ReduceOp::sum       ? a + b
                     : op == ReduceOp::product ? a * b
                     : op == ReduceOp::min     ? std::min(a, b)
                                               : std::max(a, b);
          }
          if (std::isnan(wanted)) {
            ASSERT_TRUE(std::isnan(meanings[out[i]])) << i << " " << op_name(op);
          } else {
            // (Of two zeros either one is the smaller one.)
            ASSERT_EQ(meanings[out[i]], meanings[encoded(format, meanings, wanted)])
                << a << " and " << b << ", " << op_name(op);
          }
        }
      }
    }
  }
}

TEST(Float8, FactorsAreAppliedInFloatAndRoundedOnce) {
  std::vector<std::uint8_t> codes(256);
  for (unsigned code = 0; code < 256; ++code) codes[code] = static_cast<std::uint8_t>(code);
  for (const auto& format : kFormats) {
    const auto meanings = meanings_of(format);
    for (const double factor : {1.0, 0.3, 7.0, -1e-3}) {
      std::vector<std::uint8_t> scaled(256);
      copy_scaled(format.type, scaled.data(), codes.data(), 256, factor);
      std::vector<float> wide(256);
      convert(format.type, codes.data(), DataType::float32, wide.data(), 256, factor);
      std::vector<std::uint8_t> narrow(256);
      convert(DataType::float32, wide.data(), format.type, narrow.data(), 256);
      for (unsigned code = 0; code < 256; ++code) {
        const float value = value_of(format, code) * static_cast<float>(factor);
        if (std::isnan(value)) {
          EXPECT_TRUE(std::isnan(wide[code]) && std::isnan(value_of(format, narrow[code])));
          continue;
        }
        EXPECT_EQ(wide[code], value);
        EXPECT_EQ(narrow[code], encoded(format, meanings, value)) << value;
        // A factor of 1 changes nothing: infinities are still there.
        EXPECT_EQ(scaled[code], factor == 1.0 ? code : encoded(format, meanings, value)) << value;
      }
    }
  }
}

TEST(Float8, AveragesAreMadeWhereTheirSumsAreNotCutOff) {
  EXPECT_EQ(wire_type(DataType::float8_e4m3, ReduceOp::average, Compression::none),
            DataType::float32);
  EXPECT_EQ(wire_type(DataType::float8_e5m2, ReduceOp::adasum, Compression::none),
            DataType::float32);
  EXPECT_EQ(wire_type(DataType::float8_e4m3, ReduceOp::sum, Compression::float16),
            DataType::float8_e4m3);
}

}  // namespace
}  // namespace hvd::runtime
