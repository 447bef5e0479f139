// Linked into hvdrun and its agent, and into no library: memory that one of them gives back is
// overwritten first. So a message with a credential, a header with a browser's, the digits of a
// token file or a variable of the user's that no other host may see are gone from the memory of the
// process once they were used, wherever a string of theirs was copied to.
//
// Memory still comes from malloc(), as from the functions of libstdc++ that these replace.
#include <cstdlib>
#include <malloc.h>
#include <new>

#include "base/text.h"

// The sanitizers have functions of their own here, which find more.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {

void wipe_and_free(void* memory) noexcept {
  if (memory == nullptr) return;
  hvd::wipe(memory, ::malloc_usable_size(memory));
  std::free(memory);  // NOLINT: it comes from malloc() or aligned_alloc()
}

// `get` returns nothing while there is no memory.
template <typename Get>
void* get_memory(Get get) {
  for (;;) {
    if (void* const memory = get()) return memory;
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
  }
}

}  // namespace

// The other forms, for arrays and those that do not throw, call these.
void* operator new(std::size_t size) {
  return get_memory([size] { return std::malloc(size == 0 ? 1 : size); });  // NOLINT
}

void* operator new(std::size_t size, std::align_val_t alignment) {
  const auto align = static_cast<std::size_t>(alignment);
  // aligned_alloc() asks for a multiple of the alignment.
  const std::size_t whole = (size + align - 1) / align * align;
  return get_memory(
      [=] { return std::aligned_alloc(align, whole == 0 ? align : whole); });  // NOLINT
}

void operator delete(void* memory) noexcept { wipe_and_free(memory); }
void operator delete(void* memory, std::size_t /*size*/) noexcept { wipe_and_free(memory); }
void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept {
  wipe_and_free(memory);
}
void operator delete(void* memory, std::size_t /*size*/, std::align_val_t /*alignment*/) noexcept {
  wipe_and_free(memory);
}

#endif
