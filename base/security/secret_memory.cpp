#include "base/security/secret_memory.h"

#include <cstdint>
#include <cstring>
#include <mutex>
#include <new>
#include <sys/mman.h>
#include <vector>

#include "base/threads.h"

namespace hvd {
namespace {

// A multiple of every usual size of a page, and small beside the 64 KB that old systems let a
// process lock.
constexpr std::size_t kSecretPages = 16'384;

// All pages for secrets of this process. They are kept for the next secrets.
class SecretPages {
 public:
  // Never destroyed: there are secrets until the process ends.
  static SecretPages& instance() {
    static auto* const only = new SecretPages;
    return *only;
  }

  unsigned char* take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) add_pages();
    unsigned char* const place = free_.back();
    free_.pop_back();
    return place;
  }

  // There is room for it in the list since there was before.
  void give_back(unsigned char* place) noexcept {
    wipe(place, SecretBytes::kSize);
    const std::lock_guard lock(mutex_);
    free_.push_back(place);
  }

 private:
  SecretPages() { keep_free_in_children(mutex_); }

  void add_pages() {
    constexpr std::size_t kPlaces = kSecretPages / SecretBytes::kSize;
    places_ += kPlaces;
    free_.reserve(places_);
    void* const pages =
        ::mmap(nullptr, kSecretPages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) throw std::bad_alloc();

    // A system without the first, and a user who may lock no more memory, has keys all the same.
    (void)::madvise(pages, kSecretPages, MADV_DONTDUMP);
    (void)::mlock(pages, kSecretPages);
    auto* const first = static_cast<unsigned char*>(pages);
    for (std::size_t i = kPlaces; i > 0; --i) free_.push_back(first + (i - 1) * SecretBytes::kSize);
  }

  std::mutex mutex_;
  std::vector<unsigned char*> free_;
  std::size_t places_ = 0;
};

[[maybe_unused]] const auto& secret_pages_are_made = SecretPages::instance();

}  // namespace

SecretBytes::SecretBytes() : bytes_(SecretPages::instance().take()) {}

SecretBytes::SecretBytes(const SecretBytes& other) : SecretBytes() { assign(other.bytes_); }

SecretBytes& SecretBytes::operator=(const SecretBytes& other) {
  if (this != &other) assign(other.bytes_);
  return *this;
}

// Eight bytes at a time, or a vector register would keep the whole secret. The system and the
// dynamic linker save these registers on the stack.
void SecretBytes::assign(const void* bytes) {
  const auto* const from = static_cast<const unsigned char*>(bytes);
  for (std::size_t i = 0; i < kSize; i += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, from + i, sizeof(word));
    *reinterpret_cast<volatile std::uint64_t*>(bytes_ + i) = word;
  }
}

SecretBytes::~SecretBytes() { SecretPages::instance().give_back(bytes_); }

}  // namespace hvd
