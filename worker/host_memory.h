// Ordinary memory of tensors on the host.
#pragma once

#include <algorithm>
#include <cstddef>
#include <new>

namespace hvd {

inline constexpr std::align_val_t kHostAlignment{64};

// Also what has no elements has an address. Throws std::bad_alloc.
inline std::byte* allocate_on_host(std::size_t bytes) {
  return static_cast<std::byte*>(::operator new(std::max<std::size_t>(bytes, 1), kHostAlignment));
}

inline void free_on_host(void* memory) noexcept { ::operator delete(memory, kHostAlignment); }

}  // namespace hvd
