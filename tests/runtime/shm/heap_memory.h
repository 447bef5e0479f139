// Memory of the shared heap, for containers of tests whose tensors are reduced where they lie.
#pragma once

#include <memory_resource>
#include <new>

#include "runtime/shm/shared_heap.h"

namespace hvd::test {

class HeapMemory final : public std::pmr::memory_resource {
 public:
  // The heap, or ordinary memory.
  static std::pmr::memory_resource* get(bool in_heap) {
    static HeapMemory heap;
    return in_heap ? &heap : std::pmr::get_default_resource();
  }

 private:
  void* do_allocate(std::size_t bytes, std::size_t /*alignment*/) override {
    const auto memory = runtime::SharedHeap::of_process().allocate(bytes);
    if (!memory.ok()) throw std::bad_alloc();
    return *memory;
  }
  void do_deallocate(void* memory, std::size_t /*bytes*/, std::size_t /*alignment*/) override {
    runtime::SharedHeap::of_process().free(static_cast<const std::byte*>(memory));
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
};

}  // namespace hvd::test
