// The interface to a GPU and to a library that carries bytes between GPUs, and nothing more:
// memory, copies that change elements on the way, events, collectives on whole buffers. The
// contents of each buffer, the ranks of each communicator, and the end of it all when a world fails
// are decided above it (gpu_world.h, ops/gpu_ops.h). Implemented by the module libhvd_nccl.so over
// CUDA and NCCL (runtime/nccl/), and by the tests in host memory.
//
// A Gpu is one device, for one rank. Its lanes are queues of work on the device: what is begun in a
// lane is done in that order, and nothing here waits for it. Thread by thread: enter() first; then
// everything of a Gpu may be called from any thread. A Communicator is called by one thread at a
// time, which its owner sees to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <hvd/cuda_event.h>
#include <hvd/types.h>

#include "base/status.h"

namespace hvd::runtime::gpu {

// So many elements from one place of the device to another. `from` may be `to`.
struct CopyExtent {
  const void* from = nullptr;
  void* to = nullptr;
  std::size_t elements = 0;
};

// The conversion of elements on their way: integers are wrapped into the narrower type, divided and
// truncated toward zero, then multiplied as arithmetic.h says of scale(); floating point is
// divided, multiplied and then rounded, once.
struct ElementCast {
  DataType from = DataType::uint8;
  DataType to = DataType::uint8;
  double factor = 1.0;
  int divisor = 1;
  bool changes_nothing() const { return from == to && factor == 1.0 && divisor == 1; }
};

// The reductions that a Communicator knows; average is of floating point.
enum class Reduction { sum, product, max, min, average };

// A point in a lane, until it was seen to be reached.
using Mark = void*;

class Communicator {
 public:
  virtual ~Communicator() = default;

  // Collectives of all members, in the same order on all; they begin in the lane and go on there.
  // Only between begin() and end(), which takes them together.
  virtual Status begin() = 0;
  virtual Status end() = 0;
  virtual Status all_reduce(const void* in, void* out, std::size_t elements, DataType type,
                            Reduction reduction) = 0;
  // `elements`: what each rank keeps.
  virtual Status reduce_scatter(const void* in, void* out, std::size_t elements, DataType type,
                                Reduction reduction) = 0;
  // `bytes`: what each rank gives.
  virtual Status all_gather(const void* in, void* out, std::size_t bytes) = 0;
  virtual Status broadcast(const void* in, void* out, std::size_t bytes, int root) = 0;
  virtual Status send(const void* data, std::size_t bytes, int to) = 0;
  virtual Status receive(void* data, std::size_t bytes, int from) = 0;

  // Whether what was begun last (the joining, an end(), a revoke(), a finalize()) has been taken
  // on: nothing else may be begun in the lane before. An error: the communicator is broken.
  virtual Result<bool> settled() = 0;

  // The end. All have left in peace: finalize(), and destroy() once settled. Else revoke(), which
  // ends what is in flight but frees nothing, where can_revoke(); destroy() when the others no
  // longer touch this rank's memory. Else abort_together().
  virtual Status finalize() = 0;
  virtual bool can_revoke() const = 0;
  virtual Status revoke() = 0;
  virtual Status destroy() = 0;
};

// How a communicator is formed.
struct Joining {
  std::vector<std::string> ids;  // Gpu::new_id() of some members, the same on all
  int rank = 0;
  int size = 1;
  int lane = 0;
  bool shares_device = false;  // with another member
};

struct Identity {
  std::string uuid;  // of the device, or the part of it that is one's own
  std::string name;  // for people
  std::string bus_id;
  int library_version = 0;  // 22809: NCCL 2.28.9
  // Whether the library takes two ranks on one device, and was told to.
  bool may_share_device = false;
  bool adds_float8 = false;  // the library does, on this device
};

class Gpu {
 public:
  virtual ~Gpu() = default;
  virtual const Identity& identity() const = 0;
  // The calling thread works on this device from now on.
  virtual Status enter() = 0;

  // Memory for what comes in the lane after this; released after what came before.
  virtual Result<void*> allocate(int lane, std::size_t bytes) = 0;
  virtual void release(int lane, void* memory) = 0;
  virtual Status copy(int lane, const ElementCast& cast, std::span<const CopyExtent> extents) = 0;
  // Memory of the host that the device reaches without a detour; it may go once the lane has come
  // to what was put into it before.
  virtual Result<void*> allocate_host(std::size_t bytes) = 0;
  virtual void release_host(int lane, void* memory) = 0;
  // Bytes between the device and such memory, either way.
  virtual Status transfer(int lane, const void* from, void* to, std::size_t bytes) = 0;

  // The lane goes on when the event has come; the calling thread does not wait, if the event is one
  // of the device.
  virtual Status wait_for(int lane, ReadyEvent& event) = 0;
  virtual Result<Mark> mark(int lane) = 0;
  // Whether the device has come to the mark; it is forgotten then, or by forget().
  virtual Result<bool> reached(Mark mark) = 0;
  virtual void forget(Mark mark) = 0;
  // A stream of the user's goes on when the mark has been reached.
  virtual Status hold(cuda::Stream stream, Mark mark) = 0;

  virtual Result<std::string> new_id() = 0;
  // Begins; see settled().
  virtual Result<std::unique_ptr<Communicator>> join(const Joining& joining) = 0;
  // Ends what is in flight in all of them, and them, as one; nothing else is in any of them.
  virtual Status abort_together(std::span<Communicator* const> communicators) = 0;
};

}  // namespace hvd::runtime::gpu
