#include <algorithm>
#include <new>

#include <hvd/error.h>
#include <hvd/tensor.h>

#include "base/text.h"
#include "runtime/request.h"

namespace hvd {
namespace {

constexpr std::align_val_t kAlignment{64};

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

}  // namespace

TensorView shaped(TensorView view, std::vector<std::int64_t> shape) {
  return with_shape(std::move(view), std::move(shape));
}

ConstTensorView shaped_const(ConstTensorView view, std::vector<std::int64_t> shape) {
  return with_shape(std::move(view), std::move(shape));
}

// Also what has no elements has an address.
Tensor::Tensor(std::vector<std::int64_t> shape, DataType type)
    : shape_(std::move(shape)), type_(type) {
  check_shape(shape_, type);
  const auto size = std::max<std::size_t>(bytes(), 1);
  memory_.reset(static_cast<std::byte*>(::operator new[](size, kAlignment)));
}

void Tensor::Free::operator()(std::byte* memory) const { ::operator delete[](memory, kAlignment); }

void Tensor::check_type(DataType asked) const {
  if (asked == type_) return;
  throw InvalidArgumentError(cat("a tensor of ", runtime::type_name(type_),
                                 " has no elements of type ", runtime::type_name(asked)));
}

}  // namespace hvd
