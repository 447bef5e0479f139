// The kernels of arithmetic_kernels.h by element type, for one kind of processor. Internal to
// arithmetic*.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/core/arithmetic.h"

#ifdef __x86_64__
#define HVD_AVX2_KERNELS
#endif

namespace hvd::runtime {

inline constexpr std::size_t kReduceOpCount = 6;

using FillFunction = void (*)(void* data, std::size_t count);
using ConvertFunction = void (*)(const void* in, void* out, std::size_t count, double factor);

struct TypeKernels {
  ReduceFunction reduce[kReduceOpCount] = {};
  FillFunction fill[kReduceOpCount] = {};
  void (*scale)(void* out, const void* in, std::size_t count, double factor) = nullptr;
  void (*divide)(void* data, std::size_t count, int ranks) = nullptr;
  // Null for integers.
  void (*dot_products)(const void* a, const void* b, std::size_t count, double* sums) = nullptr;
  void (*combine)(void* out, const void* a, double factor_a, const void* b, double factor_b,
                  std::size_t count) = nullptr;
  // To and from float32; null for all types but float8.
  ConvertFunction widen = nullptr;
  ConvertFunction narrow = nullptr;
};

struct Kernels {
  TypeKernels types[kDataTypes];
  // [float64][bfloat16]
  ConvertFunction compress[2][2];
  ConvertFunction expand[2][2];
};

extern const Kernels kPortableKernels;
#ifdef HVD_AVX2_KERNELS
bool has_avx2();  // and F16C
extern const Kernels kAvx2Kernels;
#endif

}  // namespace hvd::runtime
