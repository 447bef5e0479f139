#include "runtime/nccl/cuda_status.h"

#include "base/text.h"

namespace hvd::runtime::gpu {

Status cuda_status(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return {};
  // Errors that are not the device's end are told once.
  static_cast<void>(cudaGetLastError());
  const Code code = error == cudaErrorMemoryAllocation ? Code::resource_exhausted : Code::internal;
  return {code,
          cat(what, ": CUDA says ", cudaGetErrorString(error), " (", cudaGetErrorName(error), ")")};
}

Status nccl_status(ncclResult_t result, std::string_view what, ncclComm_t communicator) {
  Code code = Code::internal;
  switch (result) {
    case ncclSuccess:
    case ncclInProgress:
      return {};
    case ncclSystemError:
    case ncclRemoteError:
      code = Code::unavailable;
      break;
    case ncclInvalidUsage:
    case ncclInvalidArgument:
      code = Code::failed_precondition;
      break;
    default:
      break;
  }
  const char* const more = ncclGetLastError(communicator);
  const bool says_more = more != nullptr && *more != '\0';
  return {code, cat(what, ": NCCL says ", ncclGetErrorString(result), says_more ? "; " : "",
                    says_more ? more : "")};
}

}  // namespace hvd::runtime::gpu
