#include <type_traits>

#include "runtime/gpu/element_cast.h"
#include "runtime/gpu/pieces.h"
#include "runtime/nccl/cast.h"

namespace hvd::runtime::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kWidest = 16;  // bytes that a thread loads at once

template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Several {
  T elements[kCount];
};

__device__ bool is_aligned(const void* from, const void* to, std::size_t from_to,
                           std::size_t to_to) {
  return reinterpret_cast<std::uintptr_t>(from) % from_to == 0 &&
         reinterpret_cast<std::uintptr_t>(to) % to_to == 0;
}

// Four loads of a thread are under way before the first is stored: that is what hides the memory's
// latency.
template <typename Unit>
__device__ void copy_units(const void* from, void* to, std::uint64_t count) {
  const auto* const in = static_cast<const Unit*>(from);
  auto* const out = static_cast<Unit*>(to);
  std::uint64_t at = threadIdx.x;
  for (; at + 3 * kThreads < count; at += 4 * kThreads) {
    const Unit a = in[at];
    const Unit b = in[at + kThreads];
    const Unit c = in[at + 2 * kThreads];
    const Unit d = in[at + 3 * kThreads];
    out[at] = a;
    out[at + kThreads] = b;
    out[at + 2 * kThreads] = c;
    out[at + 3 * kThreads] = d;
  }
  for (; at < count; at += kThreads) out[at] = in[at];
}

__device__ void copy_bytes(const char* from, char* to, std::uint64_t bytes) {
  std::uint64_t done = 0;
  if (is_aligned(from, to, 16, 16)) {
    copy_units<uint4>(from, to, bytes / 16);
    done = bytes / 16 * 16;
  } else if (is_aligned(from, to, 4, 4)) {
    copy_units<unsigned>(from, to, bytes / 4);
    done = bytes / 4 * 4;
  } else if (is_aligned(from, to, 2, 2)) {
    copy_units<unsigned short>(from, to, bytes / 2);
    done = bytes / 2 * 2;
  }
  copy_units<char>(from + done, to + done, bytes - done);
}

template <typename From, typename To>
__device__ void cast_elements(const From* from, To* to, std::uint64_t count, double factor,
                              int divisor) {
  constexpr int kLarger = sizeof(From) > sizeof(To) ? sizeof(From) : sizeof(To);
  constexpr int kEach = kWidest / kLarger;
  std::uint64_t done = 0;
  using In = Several<From, kEach>;
  using Out = Several<To, kEach>;
  if (is_aligned(from, to, sizeof(In), sizeof(Out))) {
    const auto* const in = reinterpret_cast<const In*>(from);
    auto* const out = reinterpret_cast<Out*>(to);
    for (std::uint64_t at = threadIdx.x; at < count / kEach; at += kThreads) {
      const In several = in[at];
      Out result;
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        result.elements[i] = cast_element<From, To>(several.elements[i], factor, divisor);
      }
      out[at] = result;
    }
    done = count / kEach * kEach;
  }
  for (std::uint64_t at = done + threadIdx.x; at < count; at += kThreads) {
    to[at] = cast_element<From, To>(from[at], factor, divisor);
  }
}

// From and To are char for bytes that only move.
template <typename From, typename To, typename All>
__global__ void __launch_bounds__(kThreads) pass(const __grid_constant__ All all) {
  const Piece& piece = all.pieces[piece_of_block(all, blockIdx.x)];
  const std::uint64_t begin = (blockIdx.x - piece.first_block) * all.elements_per_block;
  const std::uint64_t left = piece.elements - begin;
  const std::uint64_t count = left < all.elements_per_block ? left : all.elements_per_block;
  const From* const from = static_cast<const From*>(piece.from) + begin;
  To* const to = static_cast<To*>(piece.to) + begin;
  if constexpr (std::is_same_v<From, char>) {
    copy_bytes(from, to, count);
  } else {
    cast_elements(from, to, count, all.factor, all.divisor);
  }
}

template <typename From, typename To, typename All>
cudaError_t launch_some(cudaStream_t stream, const ElementCast& cast, std::uint64_t per_block,
                        std::span<const CopyExtent>& extents) {
  All all;  // NOLINT: what is not filled is not read
  all.factor = cast.factor;
  all.divisor = cast.divisor;
  all.elements_per_block = per_block;
  const std::uint64_t blocks = take_pieces(extents, all);
  if (blocks == 0) return cudaSuccess;
  pass<From, To, All><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(all);
  return cudaGetLastError();
}

template <typename From, typename To>
cudaError_t launch_all(cudaStream_t stream, int processors, const ElementCast& cast,
                       std::span<const CopyExtent> extents) {
  constexpr std::size_t kLarger = sizeof(From) > sizeof(To) ? sizeof(From) : sizeof(To);
  const auto per_block = elements_per_block(extents, kLarger, processors);
  while (!extents.empty()) {
    cudaError_t launched = cudaSuccess;
#if CUDART_VERSION >= 12010
    if (extents.size() > FewPieces::kCapacity) {
      launched = launch_some<From, To, ManyPieces>(stream, cast, per_block, extents);
    } else
#endif
    {
      launched = launch_some<From, To, FewPieces>(stream, cast, per_block, extents);
    }
    if (launched != cudaSuccess) return launched;
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t launch_cast(cudaStream_t stream, int processors, const ElementCast& cast,
                        std::span<const CopyExtent> extents) {
  if (cast.changes_nothing() && size_of(cast.from) == 1) {
    return launch_all<char, char>(stream, processors, cast, extents);
  }
  cudaError_t launched = cudaErrorInvalidValue;
  with_types(cast.from, cast.to, [&](auto from, auto to) {
    launched = launch_all<decltype(from), decltype(to)>(stream, processors, cast, extents);
  });
  return launched;
}

}  // namespace hvd::runtime::gpu
