// A Gpu over CUDA. Made by the module.
#pragma once

#include <cuda_runtime_api.h>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/gpu/gpu.h"

namespace hvd::runtime::gpu {

// How many devices this process can use, or what the driver says why there are none.
Result<int> count_devices();

class CudaGpu final : public Gpu {
 public:
  static Result<std::unique_ptr<Gpu>> open(int device, int lanes);
  ~CudaGpu() override;
  CudaGpu(const CudaGpu&) = delete;
  CudaGpu& operator=(const CudaGpu&) = delete;

  const Identity& identity() const override { return identity_; }
  Status enter() override;
  Result<void*> allocate(int lane, std::size_t bytes) override;
  void release(int lane, void* memory) override;
  Status copy(int lane, const ElementCast& cast, std::span<const CopyExtent> extents) override;
  Result<void*> allocate_host(std::size_t bytes) override;
  void release_host(int lane, void* memory) override;
  Status transfer(int lane, const void* from, void* to, std::size_t bytes) override;
  Status wait_for(int lane, ReadyEvent& event) override;
  Result<Mark> mark(int lane) override;
  Result<bool> reached(Mark mark) override;
  void forget(Mark mark) override;
  Status hold(cuda::Stream stream, Mark mark) override;
  Result<std::string> new_id() override;
  Result<std::unique_ptr<Communicator>> join(const Joining& joining) override;
  Status abort_together(std::span<Communicator* const> communicators) override;

 private:
  explicit CudaGpu(int device) : device_(device) {}
  Status prepare(int lanes);
  cudaStream_t stream(int lane) const { return streams_[static_cast<std::size_t>(lane)]; }

  int device_;
  int processors_ = 1;
  bool has_pools_ = false;
  Identity identity_;
  std::vector<cudaStream_t> streams_;
  std::mutex mutex_;
  std::vector<cudaEvent_t> idle_events_;  // guarded by mutex_
  std::vector<cudaEvent_t> all_events_;   // guarded by mutex_
};

// For results that are made on the executor's thread and belong to the user.
Result<void*> allocate_result(int device, std::size_t bytes);
void release_result(int device, void* memory);
// An event behind what the stream has by now; a stream that waits for the result, or null.
Result<std::shared_ptr<ReadyEvent>> record_event(int device, cuda::Stream stream,
                                                 cuda::Stream waiting_stream);

}  // namespace hvd::runtime::gpu
