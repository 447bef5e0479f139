// A Copier over CUDA. Made by the module.
#pragma once

#include <cuda_runtime_api.h>
#include <memory>

#include "runtime/gpu/copier.h"

namespace hvd::runtime::gpu {

class CudaCopier final : public Copier {
 public:
  static Result<std::unique_ptr<Copier>> open(int device);
  ~CudaCopier() override;
  CudaCopier(const CudaCopier&) = delete;
  CudaCopier& operator=(const CudaCopier&) = delete;

  Result<std::size_t> free_bytes() override;
  Result<void*> allocate(KeptIn where, std::size_t bytes) override;
  void release(KeptIn where, void* memory) override;
  Status follow(cuda::Stream stream) override;
  Status lead(cuda::Stream stream) override;
  Status copy(void* to, const void* from, std::size_t bytes) override;
  Status wait() override;
  Result<std::uint64_t> digest(const void* memory, std::size_t bytes) override;
  Status health() override;

 private:
  explicit CudaCopier(int device) : device_(device) {}
  Status prepare();

  int device_;
  int processors_ = 1;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t event_ = nullptr;      // of whatever waits for whatever next
  std::uint64_t* sum_ = nullptr;     // on the device
  std::uint64_t* summed_ = nullptr;  // pinned
};

}  // namespace hvd::runtime::gpu
