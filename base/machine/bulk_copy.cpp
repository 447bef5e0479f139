#include "base/machine/bulk_copy.h"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace hvd {
namespace {

#if defined(__x86_64__)

constexpr std::size_t kLine = 64;

// Copies all whole lines; `to` begins one. Returns how many bytes were in them.
template <auto store>
std::size_t copy_lines(char* to, const char* from, std::size_t bytes) {
  const std::size_t whole = bytes / kLine * kLine;
  for (std::size_t at = 0; at < whole; at += kLine) {
    const auto* const in = reinterpret_cast<const __m128i*>(from + at);
    auto* const out = reinterpret_cast<__m128i*>(to + at);
    const __m128i a = _mm_loadu_si128(in);
    const __m128i b = _mm_loadu_si128(in + 1);
    const __m128i c = _mm_loadu_si128(in + 2);
    const __m128i d = _mm_loadu_si128(in + 3);
    store(out, a);
    store(out + 1, b);
    store(out + 2, c);
    store(out + 3, d);
  }
  return whole;
}

void store_cached(__m128i* to, __m128i value) { _mm_store_si128(to, value); }
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// Sanitizers do not see the others.
void store_streamed(__m128i* to, __m128i value) { store_cached(to, value); }
#else
void store_streamed(__m128i* to, __m128i value) { _mm_stream_si128(to, value); }
#endif

template <auto store>
void copy(void* to, const void* from, std::size_t bytes, std::size_t least) {
  auto* target = static_cast<char*>(to);
  const auto* source = static_cast<const char*>(from);
  if (bytes >= least) {
    // To where a line of the target begins.
    const std::size_t head = -reinterpret_cast<std::uintptr_t>(target) % kLine;
    if (head > 0) std::memcpy(target, source, head);
    const std::size_t done = head + copy_lines<store>(target + head, source + head, bytes - head);
    target += done;
    source += done;
    bytes -= done;
  }
  // A compiler that knows how little is left would write `rep movsq` in place of the call.
  asm("" : "+r"(bytes));
  if (bytes > 0) std::memcpy(target, source, bytes);
}

#endif

}  // namespace

#if defined(__x86_64__)

void bulk_copy(void* to, const void* from, std::size_t bytes) {
  constexpr std::size_t kLeast = 2048;  // below this the C library uses no `rep movsb`
  copy<store_cached>(to, from, bytes, kLeast);
}

void stream_copy(void* to, const void* from, std::size_t bytes) {
  constexpr std::size_t kLeast = 4 * kLine;
  copy<store_streamed>(to, from, bytes, kLeast);
}

void finish_stream_copies() { _mm_sfence(); }

#else

void bulk_copy(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void stream_copy(void* to, const void* from, std::size_t bytes) { bulk_copy(to, from, bytes); }

void finish_stream_copies() {}

#endif

}  // namespace hvd
