// LibTorch's tensors as those of hvd, and hvd's as those of LibTorch, without a copy. A part of
// hvd/torch.h.
//
//     hvd::allreduce(hvd::libtorch::view(loss), {.name = "loss"});
//     at::Tensor all = hvd::libtorch::tensor_of(hvd::allgather(hvd::libtorch::view(own)));
//
// Safe from any thread, for different tensors at the same time.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hvd/cuda.h>
#include <hvd/error.h>
#include <hvd/standard_library.h>
#include <hvd/tensor.h>
#include <hvd/types.h>

// A LibTorch that was built for CUDA has this file of its build. Others have the headers for
// streams, but not the library behind them.
#if __has_include(<c10/cuda/impl/cuda_cmake_macros.h>) && __has_include(<cuda_runtime_api.h>)
#define HVD_TORCH_HAS_CUDA 1
#include <c10/cuda/CUDAStream.h>
#else
#define HVD_TORCH_HAS_CUDA 0
#endif

namespace hvd::libtorch {
namespace detail {

inline std::optional<DataType> data_type_of(at::ScalarType type) {
  switch (type) {
    case at::kBool:
      return DataType::boolean;
    case at::kByte:
      return DataType::uint8;
    case at::kChar:
      return DataType::int8;
    case at::kShort:
      return DataType::int16;
    case at::kInt:
      return DataType::int32;
    case at::kLong:
      return DataType::int64;
    case at::kHalf:
      return DataType::float16;
    case at::kBFloat16:
      return DataType::bfloat16;
    case at::kFloat:
      return DataType::float32;
    case at::kDouble:
      return DataType::float64;
    default:
      break;
  }

  // Types that newer versions have.
  const std::string name = c10::toString(type);
  if (name == "UInt16") return DataType::uint16;
  if (name == "Float8_e4m3fn") return DataType::float8_e4m3;
  if (name == "Float8_e5m2") return DataType::float8_e5m2;
  return {};
}

inline at::ScalarType scalar_type_of(DataType type) {
  for (int i = 0; i < static_cast<int>(at::ScalarType::NumOptions); ++i) {
    const auto scalar = static_cast<at::ScalarType>(i);
    if (data_type_of(scalar) == type) return scalar;
  }
  throw InvalidArgumentError("this version of LibTorch has no elements of hvd's type " +
                             std::to_string(static_cast<int>(type)));
}

[[noreturn]] inline void refuse_tensor(const at::Tensor& tensor, const std::string& why) {
  std::string what = "hvd cannot use this tensor of LibTorch";
  if (tensor.defined()) {
    what += " (" + std::string(c10::toString(tensor.scalar_type())) + ", on " +
            tensor.device().str() + ")";
  }
  throw InvalidArgumentError(what + ": " + why);
}

inline Device place_of(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return {};
  if (tensor.is_cuda()) return {tensor.device().index()};
  refuse_tensor(tensor, "it is neither in the memory of the host nor on a CUDA device");
}

// Blocks until the current streams of their devices have done what makes these tensors.
inline void finish_streams(std::span<const at::Tensor> tensors) {
  for (const auto& tensor : tensors) {
    if (!tensor.is_cuda()) continue;
    c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device()).synchronize();
  }
}

}  // namespace detail

// The elements of a tensor, without a copy: the view holds while the tensor has its memory. Of a
// tensor without dimensions the shape is []. Throws InvalidArgumentError if the tensor is
// undefined, if its layout is sparse, if its type is not one of hvd's (complex and quantized ones
// are not), if it is not contiguous (contiguous() makes a copy that is), or if it lies on another
// device than the host or a GPU. What is written there is not known to autograd: write to tensors
// that no graph needs for its backward pass, as in at::NoGradGuard.
inline TensorView view(const at::Tensor& tensor) {
  if (!tensor.defined()) detail::refuse_tensor(tensor, "it is undefined");
  if (tensor.layout() != at::kStrided) {
    detail::refuse_tensor(tensor, "its layout is not strided; to_dense() makes one that is");
  }
  const auto type = detail::data_type_of(tensor.scalar_type());
  if (!type) detail::refuse_tensor(tensor, "hvd has no elements of this type");
  const Device device = detail::place_of(tensor);
  if (!tensor.is_contiguous()) {
    detail::refuse_tensor(tensor, "it is not contiguous; contiguous() makes one that is");
  }
  if (tensor.is_neg()) {
    detail::refuse_tensor(tensor, "it is negated when it is read; resolve_neg() makes one that is");
  }
  const auto shape = tensor.sizes();
  return {tensor.data_ptr(), {shape.begin(), shape.end()}, *type, device};
}

// The elements of a result of hvd as a tensor that owns them, without a copy, on the device where
// they lie. Throws InvalidArgumentError if this version of LibTorch lacks the type.
inline at::Tensor tensor_of(Tensor&& result) {
  const auto type = detail::scalar_type_of(result.type());
  const auto place = result.device();
  const at::Device device = place.is_host()
                                ? at::Device(at::kCPU)
                                : at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(place.cuda));
  const auto owner = std::make_shared<Tensor>(std::move(result));
  return at::from_blob(
      owner->data(), owner->shape(), [owner](void*) {},
      at::TensorOptions().dtype(type).device(device));
}

// When the current stream of a tensor's GPU has done all that it has by now, for
// adapter::Submission::ready; null for a tensor of the host. Throws InvalidArgumentError if the
// tensor lies on a GPU and this program was compiled without CUDA's headers.
inline std::shared_ptr<ReadyEvent> ready_event(const at::Tensor& tensor) {
  if (!tensor.is_cuda()) return {};
#if HVD_TORCH_HAS_CUDA
  return cuda::ready_after(c10::cuda::getCurrentCUDAStream(tensor.device().index()).stream());
#else
  detail::refuse_tensor(tensor, "this program was compiled without CUDA's headers");
#endif
}

}  // namespace hvd::libtorch
