// Element-wise arithmetic on memory of any DataType: what collectives on CPUs compute. Pure; safe
// from any thread. float16 and bfloat16 are computed in float32 and rounded to nearest even.
#pragma once

#include <cstddef>

#include <hvd/types.h>

namespace hvd::runtime {

// out[i] = a[i] (op) b[i]; out may be a or b. Null for an operation that is none of a pair of
// elements (adasum). Average sums: divide() does the rest. Of booleans, Sum and Max are "or",
// Product, Min and Average are "and". Integers wrap around.
using ReduceFunction = void (*)(void* out, const void* a, const void* b, std::size_t count);
ReduceFunction reduce_function(DataType type, ReduceOp op);

// data[i] *= factor. Integers are truncated toward zero and kept within their range; a boolean
// becomes false if the factor is 0.
void scale(DataType type, void* data, std::size_t count, double factor);

// data[i] /= ranks, the second half of Average. Integers exactly, truncated toward zero; booleans
// stay as they are.
void divide(DataType type, void* data, std::size_t count, int ranks);

float half_to_float(std::uint16_t half);
std::uint16_t float_to_half(float value);
float bfloat16_to_float(std::uint16_t value);
std::uint16_t float_to_bfloat16(float value);

}  // namespace hvd::runtime
