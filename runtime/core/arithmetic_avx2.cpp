// Compiled for processors with AVX2 and F16C; arithmetic.cpp asks whether this one is.
#include "runtime/core/arithmetic_kernels.h"

namespace hvd::runtime {

constinit const Kernels kAvx2Kernels = all_kernels();

}  // namespace hvd::runtime
