#include <hvd/cuda.h>
#include <hvd/error.h>
#include <hvd/hvd.h>

#include "base/text.h"
#include "runtime/gpu/module.h"

namespace hvd::cuda {
namespace {

// The GPU that a worker takes. `devices`: those that its process can use, of which there is at
// least one.
Result<int> device_of(int local_rank, int local_size, int devices) {
  // Each was given its own.
  if (devices == 1) return 0;
  if (local_rank < devices) return local_rank;
  return Status(
      Code::invalid_argument,
      cat("this worker has local rank ", local_rank, " of ", local_size,
          ", but this process can use ", devices,
          " GPUs: start no more workers on a host than it has GPUs (-H host:", devices, ")"));
}

Result<int> count_devices() {
  const auto module = runtime::gpu::module();
  if (!module.ok()) return module.status();
  return (*module)->device_count();
}

template <typename T>
T value_or_throw(Result<T> result) {
  if (!result.ok()) throw InvalidArgumentError(cat("hvd::cuda: ", result.status().message()));
  return std::move(*result);
}

}  // namespace

int device_count() {
  const auto count = count_devices();
  return count.ok() ? *count : 0;
}

std::string why_unavailable() { return count_devices().status().message(); }

int device() {
  const int devices = value_or_throw(count_devices());
  return value_or_throw(device_of(local_rank(), local_size(), devices));
}

std::shared_ptr<ReadyEvent> ready_after(Stream stream) {
  const int own = device();
  return value_or_throw(value_or_throw(runtime::gpu::module())->record(own, stream, nullptr));
}

std::shared_ptr<ReadyEvent> in_order_of(Stream stream) {
  const int own = device();
  return value_or_throw(value_or_throw(runtime::gpu::module())->record(own, stream, stream));
}

}  // namespace hvd::cuda
