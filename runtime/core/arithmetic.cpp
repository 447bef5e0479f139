#include "runtime/core/arithmetic.h"

#include <bit>

#include "base/machine/bulk_copy.h"
#include "runtime/core/arithmetic_table.h"

#ifdef HVD_AVX2_KERNELS
#include <cpuid.h>
#endif

namespace hvd::runtime {
namespace {

const Kernels& choose_kernels() {
#ifdef HVD_AVX2_KERNELS
  if (has_avx2()) return kAvx2Kernels;
#endif
  return kPortableKernels;
}

const Kernels& kernels() {
  static const Kernels& chosen = choose_kernels();
  return chosen;
}

const TypeKernels& kernels_of(DataType type) {
  return kernels().types[static_cast<std::size_t>(type)];
}

std::size_t index(ReduceOp op) { return static_cast<std::size_t>(op); }

}  // namespace

#ifdef HVD_AVX2_KERNELS
bool has_avx2() {
  // __builtin_cpu_supports() of some compilers does not know F16C.
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  const bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
  return f16c && __builtin_cpu_supports("avx2");
}
#endif

ReduceFunction reduce_function(DataType type, ReduceOp op) {
  return kernels_of(type).reduce[index(op)];
}

void fill_neutral(DataType type, ReduceOp op, void* data, std::size_t count) {
  kernels_of(type).fill[index(op)](data, count);
}

void scale(DataType type, void* data, std::size_t count, double factor) {
  if (factor != 1.0) kernels_of(type).scale(data, data, count, factor);
}

void copy_scaled(DataType type, void* out, const void* in, std::size_t count, double factor) {
  if (factor != 1.0) {
    kernels_of(type).scale(out, in, count, factor);
  } else if (out != in && count > 0) {
    bulk_copy(out, in, count * size_of(type));
  }
}

void divide(DataType type, void* data, std::size_t count, int ranks) {
  if (ranks != 1) kernels_of(type).divide(data, count, ranks);
}

DataType wire_type(DataType type, ReduceOp op, Compression compression) {
  if (is_float8(type)) {
    const bool combines = op == ReduceOp::average || op == ReduceOp::adasum;
    return combines ? DataType::float32 : type;
  }
  if (type != DataType::float32 && type != DataType::float64) return type;
  switch (compression) {
    case Compression::none:
      break;
    case Compression::float16:
      return DataType::float16;
    case Compression::bfloat16:
      return DataType::bfloat16;
  }
  return type;
}

void convert(DataType from, const void* in, DataType to, void* out, std::size_t count,
             double factor) {
  if (from == to) return copy_scaled(from, out, in, count, factor);
  if (is_float8(from)) return kernels_of(from).widen(in, out, count, factor);
  if (is_float8(to)) return kernels_of(to).narrow(in, out, count, factor);
  const auto wide = [](DataType type) { return type == DataType::float64 ? 1 : 0; };
  const auto brain = [](DataType type) { return type == DataType::bfloat16 ? 1 : 0; };
  const bool compresses = size_of(to) == 2;
  if (compresses) {
    kernels().compress[wide(from)][brain(to)](in, out, count, factor);
  } else {
    kernels().expand[wide(to)][brain(from)](in, out, count, factor);
  }
}

void add_dot_products(DataType type, const void* a, const void* b, std::size_t count,
                      double* sums) {
  kernels_of(type).dot_products(a, b, count, sums);
}

void combine(DataType type, void* out, const void* a, double factor_a, const void* b,
             double factor_b, std::size_t count) {
  kernels_of(type).combine(out, a, factor_a, b, factor_b, count);
}

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
  if (magnitude > 0x7F800000U) return sign | 0x7E00U;   // NaN stays NaN
  if (magnitude >= 0x477FF000U) return sign | 0x7C00U;  // rounds to 65536 or more: infinity
  if (magnitude < 0x38800000U) {                        // subnormal or zero
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

}  // namespace hvd::runtime
