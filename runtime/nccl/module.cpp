// The one symbol of libhvd_nccl.so.
#include "runtime/gpu/module.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "base/text.h"
#include "base/versions.h"
#include "runtime/gpu/capability_exchange.h"
#include "runtime/nccl/cuda_copier.h"
#include "runtime/nccl/cuda_gpu.h"
#include "runtime/nccl/nccl_communicator.h"

namespace hvd::runtime::gpu {
namespace {

std::string libraries() {
  return cat("NCCL ", version_text(nccl_version()), " (built with ",
             version_text(NCCL_VERSION_CODE), "), CUDA runtime ", CUDART_VERSION / 1000, ".",
             CUDART_VERSION % 1000 / 10);
}

}  // namespace
}  // namespace hvd::runtime::gpu

extern "C" __attribute__((visibility("default"))) const hvd::runtime::gpu::Module*
hvd_nccl_module() {
  using namespace hvd::runtime::gpu;  // NOLINT(google-build-using-namespace)
  static const Module only{{kModuleInterface, &hvd::build_id},
                           &libraries,
                           &count_devices,
                           &CudaGpu::open,
                           &allocate_result,
                           &release_result,
                           &record_event,
                           &CudaCopier::open};
  return &only;
}
