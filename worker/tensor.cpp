// Tensors, and their memory: of the host alone, shared by its workers, or on a GPU.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <new>

#include <hvd/error.h>
#include <hvd/shared_memory.h>
#include <hvd/tensor.h>

#include "base/log.h"
#include "base/machine/machine.h"
#include "base/text.h"
#include "runtime/core/request.h"
#include "runtime/gpu/module.h"
#include "runtime/shm/shared_heap.h"

namespace hvd {
namespace {

constexpr std::align_val_t kHostAlignment{64};

// Also what has no elements has an address. Throws std::bad_alloc.
std::byte* allocate_on_host(std::size_t bytes) {
  return static_cast<std::byte*>(::operator new(std::max<std::size_t>(bytes, 1), kHostAlignment));
}

void free_on_host(void* memory) noexcept { ::operator delete(memory, kHostAlignment); }

void say_why(const Status& status) {
  static std::atomic<bool> said = false;
  if (said.exchange(true)) return;
  HVD_LOG(warning, "tensors are in ordinary memory instead of shared memory, and take more time: "
                       << status.message());
}

void check_shape(const std::vector<std::int64_t>& shape, DataType type) {
  const Status fits = runtime::check_shape(shape, type);
  if (!fits.ok()) throw InvalidArgumentError(fits.message());
}

template <typename View>
View with_shape(View view, std::vector<std::int64_t> shape) {
  check_shape(shape, view.type);
  if (detail::elements_of(shape) != view.elements()) {
    throw InvalidArgumentError(cat("a tensor of shape ", runtime::shape_text(view.shape), " has ",
                                   view.elements(), " elements; it cannot have the shape ",
                                   runtime::shape_text(shape)));
  }
  view.shape = std::move(shape);
  return view;
}

std::byte* allocate_on(Device device, std::size_t bytes) {
  const auto module = runtime::gpu::module();
  if (!module.ok()) throw InvalidArgumentError(cat("hvd::Tensor: ", module.status().message()));
  const auto memory = (*module)->allocate(device.cuda, bytes);
  if (memory.ok()) return static_cast<std::byte*>(*memory);
  if (memory.status().code() == Code::resource_exhausted) {
    throw OutOfMemoryError(cat("hvd::Tensor: ", memory.status().message()));
  }
  throw InvalidArgumentError(cat("hvd::Tensor: ", memory.status().message()));
}

}  // namespace

void* detail::allocate_shared(std::size_t bytes) {
  const auto memory = runtime::SharedHeap::of_process().allocate(bytes);
  if (memory.ok()) return *memory;
  // All of it is touched at once, so more than that would be the end of the process.
  if (bytes > memory_and_swap()) throw std::bad_alloc();
  std::byte* const ordinary = allocate_on_host(bytes);
  say_why(memory.status());
  return std::memset(ordinary, 0, bytes);
}

void detail::free_shared(void* memory) noexcept {
  if (memory == nullptr) return;
  auto& heap = runtime::SharedHeap::of_process();
  if (heap.owns(memory)) {
    heap.free(static_cast<const std::byte*>(memory));
  } else {
    free_on_host(memory);
  }
}

TensorView shaped(TensorView view, std::vector<std::int64_t> shape) {
  return with_shape(std::move(view), std::move(shape));
}

ConstTensorView shaped_const(ConstTensorView view, std::vector<std::int64_t> shape) {
  return with_shape(std::move(view), std::move(shape));
}

Tensor::Tensor(std::vector<std::int64_t> shape, DataType type, Device device)
    : memory_(nullptr, detail::FreeMemory{device}), shape_(std::move(shape)), type_(type) {
  check_shape(shape_, type);
  if (device.is_host()) {
    memory_.reset(allocate_on_host(bytes()));
  } else {
    memory_.reset(allocate_on(device, bytes()));
  }
}

Tensor empty(std::vector<std::int64_t> shape, DataType type) {
  Tensor tensor;
  tensor.shape_ = std::move(shape);
  tensor.type_ = type;
  check_shape(tensor.shape_, type);
  tensor.memory_.reset(static_cast<std::byte*>(detail::allocate_shared(tensor.bytes())));
  return tensor;
}

void detail::FreeMemory::operator()(std::byte* memory) const {
  if (device.is_host()) {
    free_shared(memory);
  } else {
    (*runtime::gpu::module())->release(device.cuda, memory);  // which has allocated it
  }
}

void Tensor::check_readable(DataType asked) const {
  if (!device().is_host()) {
    throw InvalidArgumentError(cat("a tensor of ", runtime::type_name(type_),
                                   runtime::shape_text(shape_), " is in the memory of CUDA device ",
                                   device().cuda,
                                   ", where the host cannot read: copy it, or give Tensor::view() "
                                   "to what works on the device"));
  }
  if (asked == type_) return;
  throw InvalidArgumentError(cat("a tensor of ", runtime::type_name(type_),
                                 " has no elements of type ", runtime::type_name(asked)));
}

}  // namespace hvd
