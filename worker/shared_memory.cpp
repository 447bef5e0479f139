#include <atomic>
#include <cstring>
#include <new>
#include <sys/sysinfo.h>

#include <hvd/shared_memory.h>

#include "base/log.h"
#include "runtime/shm/shared_heap.h"
#include "worker/host_memory.h"

namespace hvd {
namespace {

// All of it is touched at once, so more than this would be the end of the process.
std::size_t memory_and_swap() {
  struct sysinfo machine {};
  ::sysinfo(&machine);
  return (machine.totalram + machine.totalswap) * machine.mem_unit;
}

void say_why(const Status& status) {
  static std::atomic<bool> said = false;
  if (said.exchange(true)) return;
  HVD_LOG(warning, "tensors are in ordinary memory instead of shared memory, and take more time: "
                       << status.message());
}

}  // namespace

void* detail::allocate_shared(std::size_t bytes) {
  const auto memory = runtime::SharedHeap::of_process().allocate(bytes);
  if (memory.ok()) return *memory;
  if (bytes > memory_and_swap()) throw std::bad_alloc();
  std::byte* const ordinary = allocate_on_host(bytes);
  say_why(memory.status());
  return std::memset(ordinary, 0, bytes);
}

void detail::free_shared(void* memory) noexcept {
  if (memory == nullptr) return;
  auto& heap = runtime::SharedHeap::of_process();
  if (heap.owns(memory)) {
    heap.free(static_cast<const std::byte*>(memory));
  } else {
    free_on_host(memory);
  }
}

}  // namespace hvd
