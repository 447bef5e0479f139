#include <hvd/error.h>
#include <hvd/shared_memory.h>
#include <hvd/tensor.h>

#include "base/text.h"
#include "runtime/core/request.h"
#include "runtime/gpu/module.h"
#include "worker/host_memory.h"

namespace hvd {
namespace {

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
