// Prefetching of memory whose address the processor cannot predict.
#pragma once

#include <cstddef>
#include <type_traits>

namespace hvd::runtime {

// Prefetches the first `bytes`; for writing, unless it is const.
template <typename T>
void prefetch(T* memory, std::size_t bytes) {
  constexpr std::size_t kLine = 64;
  constexpr int kToWrite = std::is_const_v<T> ? 0 : 1;
  const auto* const begin = reinterpret_cast<const std::byte*>(memory);
  for (std::size_t at = 0; at < bytes; at += kLine) __builtin_prefetch(begin + at, kToWrite);
}

}  // namespace hvd::runtime
