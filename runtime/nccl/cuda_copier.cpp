#include "runtime/nccl/cuda_copier.h"

#include <algorithm>

#include "base/text.h"
#include "runtime/nccl/cuda_gpu.h"
#include "runtime/nccl/cuda_status.h"
#include "runtime/nccl/digest_kernel.h"

namespace hvd::runtime::gpu {

Result<std::unique_ptr<Copier>> CudaCopier::open(int device) {
  const auto count = count_devices();
  HVD_RETURN_IF_ERROR(count.status());
  if (device < 0 || device >= *count) {
    return Status(Code::invalid_argument,
                  cat("there is no CUDA device ", device, ": this process can use ", *count));
  }
  std::unique_ptr<CudaCopier> opened(new CudaCopier(device));
  HVD_RETURN_IF_ERROR(opened->prepare().with_context(cat("CUDA device ", device)));
  return std::unique_ptr<Copier>(std::move(opened));
}

Status CudaCopier::prepare() {
  const DeviceScope scope(device_);
  HVD_RETURN_IF_ERROR(scope.status());
  cudaDeviceGetAttribute(&processors_, cudaDevAttrMultiProcessorCount, device_);
  HVD_RETURN_IF_ERROR(cuda_status(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                                  "make a stream for copies"));
  HVD_RETURN_IF_ERROR(
      cuda_status(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "make an event"));
  HVD_RETURN_IF_ERROR(cuda_status(cudaMalloc(&sum_, sizeof(*sum_)), "allocate on a GPU"));
  return cuda_status(cudaHostAlloc(&summed_, sizeof(*summed_), cudaHostAllocPortable),
                     "allocate pinned memory");
}

CudaCopier::~CudaCopier() {
  const DeviceScope scope(device_);
  if (stream_ != nullptr) cudaStreamSynchronize(stream_);
  if (summed_ != nullptr) cudaFreeHost(summed_);
  if (sum_ != nullptr) cudaFree(sum_);
  if (event_ != nullptr) cudaEventDestroy(event_);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

Result<std::size_t> CudaCopier::free_bytes() {
  const DeviceScope scope(device_);
  std::size_t free = 0;
  std::size_t total = 0;
  HVD_RETURN_IF_ERROR(cuda_status(cudaMemGetInfo(&free, &total), "ask for free memory"));
  return free;
}

Result<void*> CudaCopier::allocate(KeptIn where, std::size_t bytes) {
  const DeviceScope scope(device_);
  const std::size_t some = std::max<std::size_t>(bytes, 1);
  void* memory = nullptr;
  if (where == KeptIn::device) {
    HVD_RETURN_IF_ERROR(
        cuda_status(cudaMalloc(&memory, some), cat("allocate ", bytes, " bytes on a GPU")));
  } else {
    HVD_RETURN_IF_ERROR(cuda_status(cudaHostAlloc(&memory, some, cudaHostAllocPortable),
                                    cat("allocate ", bytes, " bytes of pinned memory")));
  }
  const Status cleared =
      cuda_status(cudaMemsetAsync(memory, 0, some, stream_), "clear kept memory");
  if (!cleared.ok()) {
    release(where, memory);
    return cleared;
  }
  return memory;
}

void CudaCopier::release(KeptIn where, void* memory) {
  const DeviceScope scope(device_);
  where == KeptIn::device ? cudaFree(memory) : cudaFreeHost(memory);
}

Status CudaCopier::follow(cuda::Stream stream) {
  const DeviceScope scope(device_);
  HVD_RETURN_IF_ERROR(
      cuda_status(cudaEventRecord(event_, stream), "record an event in a stream of the program"));
  return cuda_status(cudaStreamWaitEvent(stream_, event_, 0), "wait for a stream of the program");
}

Status CudaCopier::lead(cuda::Stream stream) {
  const DeviceScope scope(device_);
  HVD_RETURN_IF_ERROR(cuda_status(cudaEventRecord(event_, stream_), "record an event"));
  return cuda_status(cudaStreamWaitEvent(stream, event_, 0), "let a stream of the program wait");
}

Status CudaCopier::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return {};
  const DeviceScope scope(device_);
  return cuda_status(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_),
                     cat("copy ", bytes, " bytes"));
}

Status CudaCopier::wait() {
  const DeviceScope scope(device_);
  return cuda_status(cudaStreamSynchronize(stream_), "copies on the GPU");
}

Result<std::uint64_t> CudaCopier::digest(const void* memory, std::size_t bytes) {
  const DeviceScope scope(device_);
  HVD_RETURN_IF_ERROR(
      cuda_status(launch_digest(stream_, processors_, memory, bytes, sum_), "read kept memory"));
  HVD_RETURN_IF_ERROR(copy(summed_, sum_, sizeof(*sum_)));
  HVD_RETURN_IF_ERROR(wait());
  return *summed_;
}

Status CudaCopier::health() {
  const DeviceScope scope(device_);
  const auto state = cudaStreamQuery(stream_);
  if (state != cudaErrorNotReady) return cuda_status(state, "copies on the GPU");
  static_cast<void>(cudaGetLastError());
  return {};
}

}  // namespace hvd::runtime::gpu
