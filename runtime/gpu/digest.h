// A checksum of what lies in the memory of a GPU, made so that thousands of threads can share the
// work: each word is mixed with its place, and all are added up, in whatever order. It finds damage
// and what lies elsewhere, not malice. The same code on a GPU (runtime/nccl/digest.cu) and on the
// host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define HVD_DIGEST_CALL __host__ __device__
#else
#define HVD_DIGEST_CALL
#endif

namespace hvd::runtime::gpu {

// A bijection of 64 bits that spreads each over all.
HVD_DIGEST_CALL constexpr std::uint64_t spread(std::uint64_t bits) {
  bits ^= bits >> 32;
  bits *= 0xd6e8feb86659fd93U;
  bits ^= bits >> 32;
  bits *= 0xd6e8feb86659fd93U;
  return bits ^ (bits >> 32);
}

// The share of the word number `place` in the digest. Of the last word the bytes that are missing
// are 0.
HVD_DIGEST_CALL constexpr std::uint64_t digest_of_word(std::uint64_t word, std::uint64_t place) {
  return spread(word ^ spread(place + 1));
}

inline std::uint64_t digest_on_host(const void* memory, std::size_t bytes) {
  const auto* const at = static_cast<const char*>(memory);
  std::uint64_t sum = bytes;
  for (std::size_t place = 0; place * sizeof(std::uint64_t) < bytes; ++place) {
    std::uint64_t word = 0;
    const std::size_t begin = place * sizeof(word);
    const std::size_t left = bytes - begin;
    std::memcpy(&word, at + begin, left < sizeof(word) ? left : sizeof(word));
    sum += digest_of_word(word, place);
  }
  return sum;
}

}  // namespace hvd::runtime::gpu
