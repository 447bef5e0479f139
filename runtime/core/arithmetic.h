// Element-wise arithmetic on memory of any DataType, for collectives on CPUs. Pure; safe from any
// thread; counts are 64-bit. float16, bfloat16 and float8 are computed in float32 and rounded to
// nearest even; float8 saturates (hvd/float8.h).
//
// NaN propagates, through Min and Max as well. Of booleans Sum and Max are "any", Product, Min and
// Average are "all". Integers wrap around as unsigned numbers do; scaled and divided integers are
// truncated toward zero.
//
// Costs: every function passes once over its memory, and allocates none. The loops are vectorised
// by the compiler, once for the oldest processor and once for AVX2 with F16C, which is chosen at
// run time; both give the same bits. Measured on one core, in its cache, GB/s of one operand:
// float32, float64 and integers 40 to 55, float16 12 (without F16C 0.6), bfloat16 8 (4); memory
// that fits into no cache gives 10. Compression to 16 bits 20 to 35, back 45. Integers are scaled
// in double, at 1 to 9, and 64-bit ones divided at 4.
#pragma once

#include <cstddef>

#include <hvd/types.h>

namespace hvd::runtime {

// Ranks share a reduction out in multiples of this many elements: for the vector units, and so that
// no two ranks write to one cache line.
inline constexpr std::size_t kReduceGrain = 64;

// out[i] = a[i] (op) b[i]; out may be a or b. Null for adasum, which does not work on pairs of
// elements. Average sums: divide() does the rest.
using ReduceFunction = void (*)(void* out, const void* a, const void* b, std::size_t count);
ReduceFunction reduce_function(DataType type, ReduceOp op);

// Fills memory with the neutral element, for ranks that contribute nothing: 0, for Product 1, for
// Min and Max the largest and smallest value, of floating point the infinities. (Average is a sum
// that is divided by the number of contributing ranks.) Of booleans: false where the operation is
// "any", true where it is "all".
void fill_neutral(DataType type, ReduceOp op, void* data, std::size_t count);

// data[i] *= factor. Integers saturate, and NaN becomes 0; a boolean becomes false if the factor is
// 0. The factor is a double, so 64-bit integers beyond 2^53 lose their last bits unless it is 1.
void scale(DataType type, void* data, std::size_t count, double factor);
// out[i] = in[i] * factor, the same way; out may be in.
void copy_scaled(DataType type, void* out, const void* in, std::size_t count, double factor);

// data[i] /= ranks, the second half of Average. Integers exactly; booleans stay as they are.
void divide(DataType type, void* data, std::size_t count, int ranks);

// The type in which elements of a reduction are sent and added up: `type` itself, unless they are
// compressed, or are float8 to be averaged or combined by adasum: a float8 sum would saturate
// although the result is in range.
DataType wire_type(DataType type, ReduceOp op, Compression compression);
// Converts elements to and from their wire type and multiplies them by `factor`, in the precision
// of `from` or float32, whichever is more. From float32 and float64 to float16 and bfloat16 and
// back, and from float8 to float32 and back; out and in do not overlap. float64 is first rounded to
// odd in float32, so that the result is rounded once.
void convert(DataType from, const void* in, DataType to, void* out, std::size_t count,
             double factor = 1.0);

// For adasum: sums[0] += a.b, sums[1] += a.a, sums[2] += b.b, in double. Floating point only.
void add_dot_products(DataType type, const void* a, const void* b, std::size_t count, double* sums);
// out[i] = factor_a * a[i] + factor_b * b[i], in float32 or double; out may be a or b.
void combine(DataType type, void* out, const void* a, double factor_a, const void* b,
             double factor_b, std::size_t count);

float half_to_float(std::uint16_t half);
std::uint16_t float_to_half(float value);
float bfloat16_to_float(std::uint16_t value);
std::uint16_t float_to_bfloat16(float value);

}  // namespace hvd::runtime
