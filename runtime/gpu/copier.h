// The interface to a GPU beside all worlds, for parts that outlive them: memory that is kept, and a
// queue of its own for copies, so that no thread waits for them. Implemented by the module
// (module.h) over CUDA, and by the tests in host memory.
//
// It belongs to its opener, and is called by one thread at a time. Nothing waits on the
// host but wait() and digest().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <hvd/cuda_event.h>
#include <hvd/types.h>

#include "base/status.h"

namespace hvd::runtime::gpu {

// Where kept memory lies: on the device, or on the host, in pages that the device reaches by
// itself.
enum class KeptIn { device, pinned };

class Copier {
 public:
  virtual ~Copier() = default;

  virtual Result<std::size_t> free_bytes() = 0;  // of the device
  // All zeros. resource_exhausted: there is no more. Released at once: nothing may be under way
  // there.
  virtual Result<void*> allocate(KeptIn where, std::size_t bytes) = 0;
  virtual void release(KeptIn where, void* memory) = 0;

  // Work that is begun after this comes after all that is in the stream of the program by now.
  // Null: the legacy stream.
  virtual Status follow(cuda::Stream stream) = 0;
  // Work that is put into that stream after this comes after all that was begun here.
  virtual Status lead(cuda::Stream stream) = 0;
  // Between any two kinds of memory that the device reaches.
  virtual Status copy(void* to, const void* from, std::size_t bytes) = 0;
  // Until all is done.
  virtual Status wait() = 0;
  // digest.h of such memory, as it is when all that was begun is done.
  virtual Result<std::uint64_t> digest(const void* memory, std::size_t bytes) = 0;
  // Whether all is well with what was begun so far; it may not be done yet.
  virtual Status health() = 0;
};

}  // namespace hvd::runtime::gpu
