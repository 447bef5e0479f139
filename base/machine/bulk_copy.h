// Copies of much memory. Safe from any thread.
#pragma once

#include <cstddef>

namespace hvd {

using CopyFunction = void (*)(void* to, const void* from, std::size_t bytes);

// As std::memcpy, which it is for little. For much, the C library may use `rep movsb`: processors
// of the Zen 3 family take five times as long for that when the target begins a few bytes further
// within its page than the source does, as what malloc() gives does, 16 bytes behind a page's
// beginning, beside memory that was mapped (glibc's bug 30994; glibc 2.39 and newer know of it).
void bulk_copy(void* to, const void* from, std::size_t bytes);

// The same past the caches, where the processor can: no line is fetched, from memory or from
// another core, only to be overwritten; its readers get it from memory.
void stream_copy(void* to, const void* from, std::size_t bytes);
// Before a store, of whatever kind, by which other threads learn that a stream_copy() of this one
// is done: the processor may let that overtake it.
void finish_stream_copies();

}  // namespace hvd
