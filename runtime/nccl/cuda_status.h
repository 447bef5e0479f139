// Errors of CUDA and NCCL as values.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <string_view>

#include "base/status.h"

namespace hvd::runtime::gpu {

Status cuda_status(cudaError_t error, std::string_view what);
// ncclInProgress is no error. `communicator`: may be null.
Status nccl_status(ncclResult_t result, std::string_view what, ncclComm_t communicator = nullptr);

// The calling thread works on this device until the end of the scope.
class DeviceScope {
 public:
  explicit DeviceScope(int device) {
    if (cudaGetDevice(&before_) != cudaSuccess) before_ = -1;
    status_ = cuda_status(cudaSetDevice(device), "choose the CUDA device");
  }
  ~DeviceScope() {
    if (before_ >= 0) cudaSetDevice(before_);
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;
  const Status& status() const { return status_; }

 private:
  int before_ = -1;
  Status status_;
};

}  // namespace hvd::runtime::gpu
