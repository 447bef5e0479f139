// Memory of a simulated GPU, as a program sees that of a real one: it can pass the addresses on,
// and is ended by a signal if it reads or writes there. Safe from any thread.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

#include "tests/runtime/gpu/host_gpu.h"

namespace hvd::test {

class HiddenMemory final : public HostGpuMemory {
 public:
  explicit HiddenMemory(std::size_t capacity);
  ~HiddenMemory() override;
  HiddenMemory(const HiddenMemory&) = delete;
  HiddenMemory& operator=(const HiddenMemory&) = delete;

  // Null: there is no more.
  void* allocate(std::size_t bytes) override;
  void release(void* memory) override;
  // Where the bytes are; of addresses that are not of this memory, themselves.
  void* reach(const void* address) const override;
  std::size_t capacity() const { return capacity_; }
  std::size_t free_bytes() const;

 private:
  std::size_t capacity_;
  std::byte* addresses_ = nullptr;  // of as many bytes, none of which there is
  std::byte* bytes_ = nullptr;
  mutable std::mutex mutex_;
  std::map<std::size_t, std::size_t> free_;  // sizes by offset
  std::map<std::size_t, std::size_t> used_;
};

}  // namespace hvd::test
