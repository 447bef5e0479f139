#include "runtime/gpu/digest.h"
#include "runtime/nccl/digest_kernel.h"

namespace hvd::runtime::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksPerProcessor = 8;

__global__ void __launch_bounds__(kThreads)
    digest(const unsigned char* memory, std::uint64_t bytes, std::uint64_t* sum) {
  const auto* const words = reinterpret_cast<const std::uint64_t*>(memory);
  const std::uint64_t whole = bytes / sizeof(std::uint64_t);
  const std::uint64_t stride = std::uint64_t{gridDim.x} * kThreads;
  const std::uint64_t first = std::uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  std::uint64_t own = 0;
  for (std::uint64_t place = first; place < whole; place += stride) {
    own += digest_of_word(words[place], place);
  }
  if (first == 0) {
    own += bytes;
    std::uint64_t rest = 0;
    for (std::uint64_t at = whole * sizeof(rest); at < bytes; ++at) {
      rest |= std::uint64_t{memory[at]} << (8 * (at - whole * sizeof(rest)));
    }
    if (whole * sizeof(rest) < bytes) own += digest_of_word(rest, whole);
  }
  // One addition for a warp, whose threads are all here.
  for (int distance = 16; distance > 0; distance /= 2) {
    own += __shfl_down_sync(0xffffffffU, own, distance);
  }
  if (threadIdx.x % 32 == 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(sum), static_cast<unsigned long long>(own));
  }
}

}  // namespace

cudaError_t launch_digest(cudaStream_t stream, int processors, const void* memory,
                          std::size_t bytes, std::uint64_t* sum) {
  const cudaError_t cleared = cudaMemsetAsync(sum, 0, sizeof(*sum), stream);
  if (cleared != cudaSuccess) return cleared;
  digest<<<static_cast<unsigned>(processors * kBlocksPerProcessor), kThreads, 0, stream>>>(
      static_cast<const unsigned char*>(memory), bytes, sum);
  return cudaGetLastError();
}

}  // namespace hvd::runtime::gpu
