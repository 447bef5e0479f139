// A Communicator over NCCL, not blocking. Belongs to a CudaGpu.
#pragma once

#include <cuda_runtime_api.h>
#include <memory>
#include <nccl.h>

#include "runtime/gpu/gpu.h"

namespace hvd::runtime::gpu {

class NcclCommunicator final : public Communicator {
 public:
  static Result<std::unique_ptr<Communicator>> join(const Joining& joining, cudaStream_t stream);

  Status begin() override;
  Status end() override;
  Status all_reduce(const void* in, void* out, std::size_t elements, DataType type,
                    Reduction reduction) override;
  Status reduce_scatter(const void* in, void* out, std::size_t elements, DataType type,
                        Reduction reduction) override;
  Status all_gather(const void* in, void* out, std::size_t bytes) override;
  Status broadcast(const void* in, void* out, std::size_t bytes, int root) override;
  Status send(const void* data, std::size_t bytes, int to) override;
  Status receive(void* data, std::size_t bytes, int from) override;
  Result<bool> settled() override;
  Status finalize() override;
  bool can_revoke() const override;
  Status revoke() override;
  Status destroy() override;
  // Within a group.
  Status abort();

 private:
  explicit NcclCommunicator(cudaStream_t stream) : stream_(stream) {}
  Status said(ncclResult_t result, const char* what) const { return nccl_status_of(result, what); }
  Status nccl_status_of(ncclResult_t result, const char* what) const;

  ncclComm_t communicator_ = nullptr;
  cudaStream_t stream_;
};

// The version of NCCL that is at hand, 22809, and 0 if it does not say.
int nccl_version();

}  // namespace hvd::runtime::gpu
