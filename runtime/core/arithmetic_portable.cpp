#include "runtime/core/arithmetic_kernels.h"

namespace hvd::runtime {

constinit const Kernels kPortableKernels = all_kernels();

}  // namespace hvd::runtime
