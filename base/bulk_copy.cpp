#include "base/bulk_copy.h"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace hvd {
namespace {

// Below this the C library uses no `rep movsb`.
constexpr std::size_t kLeast = 2048;

}  // namespace

void bulk_copy(void* to, const void* from, std::size_t bytes) {
#if defined(__x86_64__)
  if (bytes >= kLeast) {
    constexpr std::size_t kStep = 4 * sizeof(__m128i);
    auto* target = static_cast<char*>(to);
    const auto* source = static_cast<const char*>(from);
    // From where a line of the target begins.
    const std::size_t head = -reinterpret_cast<std::uintptr_t>(target) % 64;
    std::memcpy(target, source, 64);
    target += head;
    source += head;
    bytes -= head;
    for (; bytes >= kStep; bytes -= kStep, target += kStep, source += kStep) {
      const auto* const in = reinterpret_cast<const __m128i*>(source);
      auto* const out = reinterpret_cast<__m128i*>(target);
      const __m128i a = _mm_loadu_si128(in);
      const __m128i b = _mm_loadu_si128(in + 1);
      const __m128i c = _mm_loadu_si128(in + 2);
      const __m128i d = _mm_loadu_si128(in + 3);
      _mm_store_si128(out, a);
      _mm_store_si128(out + 1, b);
      _mm_store_si128(out + 2, c);
      _mm_store_si128(out + 3, d);
    }
    to = target;
    from = source;
  }
  // A compiler that knows how little is left would write `rep movsq` in place of the call.
  asm("" : "+r"(bytes));
#endif
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace hvd
