#include "tests/runtime/gpu/hidden_memory.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <sys/mman.h>

namespace hvd::test {
namespace {

constexpr std::size_t kAlignment = 256;

std::byte* reserve(std::size_t bytes, int protection) {
  void* const memory =
      ::mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  return static_cast<std::byte*>(memory);
}

}  // namespace

HiddenMemory::HiddenMemory(std::size_t capacity)
    : capacity_(capacity),
      addresses_(reserve(capacity, PROT_NONE)),
      bytes_(reserve(capacity, PROT_READ | PROT_WRITE)),
      free_{{0, capacity}} {}

HiddenMemory::~HiddenMemory() {
  ::munmap(addresses_, capacity_);
  ::munmap(bytes_, capacity_);
}

void* HiddenMemory::allocate(std::size_t bytes) {
  const std::size_t size = std::max(bytes + kAlignment - 1, kAlignment) / kAlignment * kAlignment;
  const std::lock_guard lock(mutex_);
  const auto place =
      std::find_if(free_.begin(), free_.end(), [&](const auto& one) { return one.second >= size; });
  if (place == free_.end()) return nullptr;
  const auto [offset, room] = *place;
  free_.erase(place);
  if (room > size) free_[offset + size] = room - size;
  used_[offset] = size;
  return addresses_ + offset;
}

void HiddenMemory::release(void* memory) {
  const std::lock_guard lock(mutex_);
  const auto found =
      used_.extract(static_cast<std::size_t>(static_cast<const std::byte*>(memory) - addresses_));
  if (!found) std::abort();  // never allocated, or released twice
  auto place = free_.emplace(found.key(), found.mapped()).first;
  if (const auto next = std::next(place);
      next != free_.end() && next->first == place->first + place->second) {
    place->second += next->second;
    free_.erase(next);
  }
  if (place == free_.begin()) return;
  const auto before = std::prev(place);
  if (before->first + before->second != place->first) return;
  before->second += place->second;
  free_.erase(place);
}

void* HiddenMemory::reach(const void* address) const {
  const auto* const at = static_cast<const std::byte*>(address);
  const std::less<const std::byte*> before;
  if (before(at, addresses_) || !before(at, addresses_ + capacity_)) {
    return const_cast<void*>(address);
  }
  return bytes_ + (at - addresses_);
}

std::size_t HiddenMemory::free_bytes() const {
  const std::lock_guard lock(mutex_);
  std::size_t bytes = 0;
  for (const auto& [offset, size] : free_) bytes += size;
  return bytes;
}

}  // namespace hvd::test
