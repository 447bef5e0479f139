// Tensors in memory that the ranks of a host share. Large allreduces of such tensors, in place, are
// done where the tensors lie: nothing is copied into shared memory and out of it, which saves a
// quarter to a half of the time where each rank has a core (docs/performance.md).
//
//     hvd::Tensor gradients = hvd::empty({1000, 1000}, hvd::DataType::float32);
//     std::vector<float, hvd::SharedAllocator<float>> more(1 << 20);
//     hvd::allreduce(gradients);
//     hvd::allreduce(more);
//
// The memory may be used with all calls and without them, before init() and after shutdown(), and
// in each world that comes later. Each allocation takes whole pages, at once. They count as shared
// memory of the process and against the limit of its container or cgroup, not against /dev/shm.
//
// Nothing but time depends on it. Where the process may not map so much (a limit on its address
// space or on the size of files) its tensors are in ordinary memory, which the log says once. Ranks
// may have their tensors in memory of both kinds.
//
// A process that the program forks sees the tensors of its parent, and both write to the same
// memory. It must not use a tensor for longer than the parent has it. The memory is not for
// programs that lock all of theirs (mlockall).
//
// All calls are safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <vector>

#include <hvd/export.h>
#include <hvd/tensor.h>

namespace hvd {

// A tensor of zeros. Throws InvalidArgumentError if no memory has this shape, std::bad_alloc if
// there is no memory left.
HVD_API Tensor empty(std::vector<std::int64_t> shape, DataType type);

namespace detail {
// Throws std::bad_alloc.
HVD_API void* allocate_shared(std::size_t bytes);
HVD_API void free_shared(void* memory) noexcept;
}  // namespace detail

// For containers of the standard library.
template <typename T>
struct SharedAllocator {
  static_assert(alignof(T) <= 64);
  using value_type = T;

  SharedAllocator() = default;
  template <typename U>
  SharedAllocator(const SharedAllocator<U>& /*other*/) {}  // NOLINT(google-explicit-constructor)

  T* allocate(std::size_t count) {
    if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) {
      throw std::bad_array_new_length();
    }
    return static_cast<T*>(detail::allocate_shared(count * sizeof(T)));
  }
  void deallocate(T* memory, std::size_t /*count*/) { detail::free_shared(memory); }

  friend bool operator==(const SharedAllocator&, const SharedAllocator&) { return true; }
};

}  // namespace hvd
