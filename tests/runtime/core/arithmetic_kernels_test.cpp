// Every loop of every kind of processor against the plain reference.
#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "base/text.h"
#include "runtime/core/arithmetic_table.h"
#include "runtime/core/request.h"
#include "tests/runtime/ops/reference.h"

namespace hvd::test {
namespace {

using runtime::Kernels;

struct Processor {
  const char* name;
  const Kernels* kernels;
};

class ArithmeticKernels : public ::testing::TestWithParam<Processor> {
 protected:
  static const runtime::TypeKernels& of(DataType type) {
    return GetParam().kernels->types[static_cast<std::size_t>(type)];
  }
};

std::vector<Processor> processors() {
  std::vector<Processor> all{{"portable", &runtime::kPortableKernels}};
#ifdef HVD_AVX2_KERNELS
  if (runtime::has_avx2()) {
    all.push_back({"avx2", &runtime::kAvx2Kernels});
  }
#endif
  return all;
}

INSTANTIATE_TEST_SUITE_P(Processors, ArithmeticKernels, ::testing::ValuesIn(processors()),
                         [](const auto& tested) { return std::string(tested.param.name); });

constexpr std::size_t kCounts[] = {0, 1, 7, 8, 9, 31, 511, 513, 1'025};
constexpr ReduceOp kOps[] = {ReduceOp::average, ReduceOp::sum, ReduceOp::min, ReduceOp::max,
                             ReduceOp::product};

TEST_P(ArithmeticKernels, ReduceAsTheReferenceDoesAlsoInPlace) {
  for (const auto type : kAllTypes) {
    for (const auto op : kOps) {
      const auto reduce = of(type).reduce[static_cast<std::size_t>(op)];
      for (const auto count : kCounts) {
        const Values a = values_of(type, op, 0, count, 1);
        const Values b = values_of(type, op, 1, count, 2);
        Values wanted(count);
        for (std::size_t i = 0; i < count; ++i) wanted[i] = reduce_two(type, op, a[i], b[i]);
        const Bytes expected = encode(type, wanted);
        Bytes left = encode(type, a);
        Bytes right = encode(type, b);
        Bytes out(left.size());
        const auto where = cat(runtime::type_name(type), " ", runtime::op_name(op), " ", count);
        reduce(out.data(), left.data(), right.data(), count);
        EXPECT_EQ(decode(type, out), decode(type, expected)) << where;
        reduce(right.data(), left.data(), right.data(), count);
        EXPECT_EQ(decode(type, right), decode(type, expected)) << where << ", into the right one";
        reduce(left.data(), left.data(), encode(type, b).data(), count);
        EXPECT_EQ(decode(type, left), decode(type, expected)) << where << ", into the left one";
      }
    }
  }
}

TEST_P(ArithmeticKernels, ReduceEveryPairOfSpecialHalvesAsFloatsAreReduced) {
  constexpr std::uint16_t kSpecial[] = {0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x3C00, 0xBC01,
                                        0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0x7D01};
  for (const auto type : {DataType::float16, DataType::bfloat16}) {
    for (const auto op : kOps) {
      Bytes a;
      Bytes b;
      Bytes out;
      std::vector<float> wanted;
      for (const auto x : kSpecial) {
        for (const auto y : kSpecial) {
          const std::size_t i = wanted.size();
          a.resize(2 * (i + 1));
          b.resize(2 * (i + 1));
          put(a, i, x);
          put(b, i, y);
          const bool half = type == DataType::float16;
          const float left = half ? runtime::half_to_float(x) : runtime::bfloat16_to_float(x);
          const float right = half ? runtime::half_to_float(y) : runtime::bfloat16_to_float(y);
          float result = 0;
          runtime::reduce_function(DataType::float32, op)(&result, &left, &right, 1);
          wanted.push_back(half ? runtime::half_to_float(runtime::float_to_half(result))
                                : runtime::bfloat16_to_float(runtime::float_to_bfloat16(result)));
        }
      }
      out.resize(a.size());
      of(type).reduce[static_cast<std::size_t>(op)](out.data(), a.data(), b.data(), wanted.size());
      const Values got = decode(type, out);
      for (std::size_t i = 0; i < got.size(); ++i) {
        if (std::isnan(wanted[i])) {
          EXPECT_TRUE(std::isnan(got[i])) << i;
        } else {
          EXPECT_EQ(got[i], wanted[i]) << i;
          EXPECT_EQ(std::signbit(got[i]), std::signbit(wanted[i])) << i;
        }
      }
    }
  }
}

TEST_P(ArithmeticKernels, NeutralElementsChangeNothing) {
  for (const auto type : kAllTypes) {
    for (const auto op : kOps) {
      constexpr std::size_t kCount = 521;
      Values values = values_of(type, op, 3, kCount, 0);
      if (is_floating(type)) {
        values[5] = std::numeric_limits<double>::infinity();
        values[6] = -std::numeric_limits<double>::infinity();
      }
      const Bytes input = encode(type, values);
      Bytes neutral(input.size(), std::byte{0x5A});
      of(type).fill[static_cast<std::size_t>(op)](neutral.data(), kCount);
      Bytes out(input.size());
      const auto reduce = of(type).reduce[static_cast<std::size_t>(op)];
      for (const bool left : {true, false}) {
        reduce(out.data(), left ? neutral.data() : input.data(),
               left ? input.data() : neutral.data(), kCount);
        EXPECT_EQ(decode(type, out), decode(type, input))
            << runtime::type_name(type) << " " << runtime::op_name(op);
      }
    }
  }
}

TEST_P(ArithmeticKernels, ScaleAndDivideAsTheReferenceDoes) {
  for (const auto type : kAllTypes) {
    const Values values = values_of(type, ReduceOp::sum, 2, 777, 0);
    Bytes data = encode(type, values);
    Bytes out(data.size());
    of(type).scale(out.data(), data.data(), values.size(), 1.5);
    EXPECT_EQ(decode(type, out), scaled(type, values, 1.5)) << runtime::type_name(type);
    for (const int ranks : {2, 3, 7}) {
      Bytes quotient = data;
      of(type).divide(quotient.data(), values.size(), ranks);
      Values wanted = values;
      for (auto& value : wanted) {
        if (type != DataType::boolean) value /= ranks;
        if (!is_floating(type)) value = std::trunc(value);
      }
      EXPECT_EQ(decode(type, quotient), stored(type, wanted)) << runtime::type_name(type);
    }
  }
}

TEST_P(ArithmeticKernels, CompressionRoundsOnceToTheNearest) {
  // Around every 97th half, and half-way to its neighbour.
  std::vector<double> values;
  for (std::uint32_t bits = 0; bits < 0x7C00; bits += 97) {
    const double value = runtime::half_to_float(static_cast<std::uint16_t>(bits));
    const double next = runtime::half_to_float(static_cast<std::uint16_t>(bits + 1));
    const double tie = (value + next) / 2;
    for (const double one : {value, tie, std::nextafter(tie, 0.0), std::nextafter(tie, 1e9)}) {
      values.push_back(one);
      values.push_back(-one);
    }
  }
  Bytes out(values.size() * 2);
  GetParam().kernels->compress[1][0](values.data(), out.data(), values.size(), 1.0);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t half = get<std::uint16_t>(out, i);
    const double error = std::abs(runtime::half_to_float(half) - values[i]);
    for (const int step : {-1, 1}) {
      const auto neighbour = static_cast<std::uint16_t>(half + step);
      if ((neighbour & 0x7C00) == 0x7C00 || (half & 0x7FFF) == 0) continue;
      const double other = std::abs(runtime::half_to_float(neighbour) - values[i]);
      EXPECT_TRUE(error < other || (error == other && (half & 1) == 0)) << values[i];
    }
  }
}

TEST_P(ArithmeticKernels, CompressedElementsComeBack) {
  for (const bool wide : {false, true}) {
    for (const bool brain : {false, true}) {
      const DataType type = wide ? DataType::float64 : DataType::float32;
      const DataType wire = brain ? DataType::bfloat16 : DataType::float16;
      const Values values = values_of(type, ReduceOp::sum, 1, 1'031, 0);
      const Bytes input = encode(type, values);
      Bytes packed(values.size() * 2);
      Bytes output(input.size());
      GetParam().kernels->compress[wide][brain](input.data(), packed.data(), values.size(), 2.0);
      EXPECT_EQ(decode(wire, packed), scaled(type, values, 2.0));
      GetParam().kernels->expand[wide][brain](packed.data(), output.data(), values.size(), 0.5);
      EXPECT_EQ(decode(type, output), values);
    }
  }
}

TEST_P(ArithmeticKernels, DotProductsAndCombinationsAreExactForSmallIntegers) {
  for (const auto type : kAllTypes) {
    if (!is_floating(type)) {
      EXPECT_EQ(of(type).dot_products, nullptr);
      continue;
    }
    for (const auto count : kCounts) {
      const Values a = values_of(type, ReduceOp::sum, 0, count, 0);
      const Values b = values_of(type, ReduceOp::sum, 1, count, 3);
      double wanted[3] = {1, 2, 3};
      Values combined(count);
      for (std::size_t i = 0; i < count; ++i) {
        wanted[0] += a[i] * b[i];
        wanted[1] += a[i] * a[i];
        wanted[2] += b[i] * b[i];
        combined[i] = 2 * a[i] - 0.5 * b[i];
      }
      double sums[3] = {1, 2, 3};
      const Bytes left = encode(type, a);
      const Bytes right = encode(type, b);
      of(type).dot_products(left.data(), right.data(), count, sums);
      EXPECT_EQ(sums[0], wanted[0]);
      EXPECT_EQ(sums[1], wanted[1]);
      EXPECT_EQ(sums[2], wanted[2]);
      Bytes out(left.size());
      of(type).combine(out.data(), left.data(), 2, right.data(), -0.5, count);
      EXPECT_EQ(decode(type, out), stored(type, combined));
    }
  }
}

TEST_P(ArithmeticKernels, AFactorMayBeOutOfRangeWhereItsProductIsNot) {
  for (const auto type : {DataType::float32, DataType::bfloat16, DataType::float64}) {
    for (const auto count : kCounts) {
      const Bytes small = encode(type, Values(count, 0x1p-130));
      const Bytes large = encode(type, Values(count, 1.0));
      Bytes out(small.size());
      of(type).combine(out.data(), small.data(), -0x1p129, large.data(), 1, count);
      EXPECT_EQ(decode(type, out), Values(count, 0.5));
      of(type).combine(out.data(), large.data(), 1, small.data(), -0x1p129, count);
      EXPECT_EQ(decode(type, out), Values(count, 0.5));
    }
  }
}

}  // namespace
}  // namespace hvd::test
