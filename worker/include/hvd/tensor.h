// Tensors as arguments and as results.
//
// A view is elements in memory that the caller owns: a pointer, a shape, a type, a device. Whatever
// std::span can be made of turns into one with one dimension by itself: std::vector, std::array, C
// arrays, std::span. shaped() gives it more. Elements are contiguous, the last dimension fastest.
//
//     std::vector<float> matrix(6);
//     hvd::allreduce(matrix);                                // shape [6]
//     hvd::allreduce(hvd::shaped(matrix, {2, 3}));           // shape [2, 3]
//
// A Tensor owns its elements: the result of a collective whose shape only the ranks together know.
// It lies where the input lies: that of a tensor of a GPU in the memory of that GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <hvd/export.h>
#include <hvd/float16.h>
#include <hvd/float8.h>
#include <hvd/standard_library.h>
#include <hvd/types.h>

namespace hvd {

template <typename T>
inline constexpr bool kIsElement = false;
// There is one for element types only.
template <typename T>
requires kIsElement<T>
inline constexpr DataType kDataTypeOf = DataType::uint8;

#define HVD_ELEMENT(cpp_type, data_type)             \
  template <>                                        \
  inline constexpr bool kIsElement<cpp_type> = true; \
  template <>                                        \
  inline constexpr DataType kDataTypeOf<cpp_type> = DataType::data_type
HVD_ELEMENT(bool, boolean);
HVD_ELEMENT(std::uint8_t, uint8);
HVD_ELEMENT(std::int8_t, int8);
HVD_ELEMENT(std::uint16_t, uint16);
HVD_ELEMENT(std::int16_t, int16);
HVD_ELEMENT(std::int32_t, int32);
HVD_ELEMENT(std::int64_t, int64);
HVD_ELEMENT(float16, float16);
HVD_ELEMENT(bfloat16, bfloat16);
HVD_ELEMENT(float, float32);
HVD_ELEMENT(double, float64);
HVD_ELEMENT(float8_e4m3, float8_e4m3);
HVD_ELEMENT(float8_e5m2, float8_e5m2);
#undef HVD_ELEMENT

namespace detail {

template <typename C>
using ElementOf =
    typename decltype(std::span(std::declval<std::remove_reference_t<C>&>()))::element_type;

// Elements that a span can be made of, and ones that may be written.
template <typename C>
concept Readable = requires(std::remove_reference_t<C>& container) {
  std::span(container);
}
&&kIsElement<std::remove_const_t<ElementOf<C>>>;
template <typename C>
concept Writable = Readable<C> && !std::is_const_v<ElementOf<C>>;

// The product of the extents. Overflow and negative extents are found when the view is used.
inline std::int64_t elements_of(std::span<const std::int64_t> shape) {
  std::uint64_t count = 1;
  for (const auto extent : shape) count *= static_cast<std::uint64_t>(extent);
  return static_cast<std::int64_t>(count);
}

// Gives a Tensor's memory back to where it is from.
struct HVD_API FreeMemory {
  Device device = {};
  void operator()(std::byte* memory) const;
};

}  // namespace detail

// Elements that are read.
struct ConstTensorView {
  const void* data = nullptr;
  std::vector<std::int64_t> shape = {0};
  DataType type = DataType::uint8;
  Device device = {};

  ConstTensorView() = default;
  ConstTensorView(const void* elements, std::vector<std::int64_t> extents, DataType element_type,
                  Device where = {})
      : data(elements), shape(std::move(extents)), type(element_type), device(where) {}
  template <detail::Readable C>
  ConstTensorView(const C& container)  // NOLINT(google-explicit-constructor): it is a view of it
      : data(std::span(container).data()),
        shape{static_cast<std::int64_t>(std::span(container).size())},
        type(kDataTypeOf<std::remove_const_t<detail::ElementOf<const C>>>) {}

  std::int64_t elements() const { return detail::elements_of(shape); }
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * size_of(type); }
};

// Elements that are written, or read and written.
struct TensorView {
  void* data = nullptr;
  std::vector<std::int64_t> shape = {0};
  DataType type = DataType::uint8;
  Device device = {};

  TensorView() = default;
  TensorView(void* elements, std::vector<std::int64_t> extents, DataType element_type,
             Device where = {})
      : data(elements), shape(std::move(extents)), type(element_type), device(where) {}
  // It is a view of it; and no copy of this type is taken for one.
  template <typename C>
  requires(detail::Writable<C> && !std::is_base_of_v<TensorView, std::remove_cvref_t<C>>)
      // NOLINTNEXTLINE(google-explicit-constructor,bugprone-forwarding-reference-overload)
      TensorView(C&& container)
      : data(std::span(container).data()),
        shape{static_cast<std::int64_t>(std::span(container).size())},
        type(kDataTypeOf<detail::ElementOf<C>>) {}

  std::int64_t elements() const { return detail::elements_of(shape); }
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * size_of(type); }
  operator ConstTensorView() const {  // NOLINT(google-explicit-constructor): what may be written
    return {data, shape, type, device};
  }
};

// The same elements in another shape; throws InvalidArgumentError if it has more or fewer.
HVD_API TensorView shaped(TensorView view, std::vector<std::int64_t> shape);
HVD_API ConstTensorView shaped_const(ConstTensorView view, std::vector<std::int64_t> shape);

// Elements in memory of its own, aligned to 64 bytes, of the host or of a CUDA device. The latter
// is given back when all is done that the device's legacy stream has by then: work of a
// non-blocking stream with it must have ended. For one thread at a time; moved, never copied.
class HVD_API Tensor {
 public:
  Tensor() = default;  // shape [0], of bytes
  // Not set to anything. Throws InvalidArgumentError if no memory has this shape, OutOfMemoryError
  // if the device has no more.
  Tensor(std::vector<std::int64_t> shape, DataType type, Device device = {});
  Tensor(Tensor&&) noexcept = default;
  Tensor& operator=(Tensor&&) noexcept = default;
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor() = default;

  const std::vector<std::int64_t>& shape() const { return shape_; }
  DataType type() const { return type_; }
  Device device() const { return memory_.get_deleter().device; }
  std::int64_t elements() const { return detail::elements_of(shape_); }
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * size_of(type_); }
  void* data() { return memory_.get(); }
  const void* data() const { return memory_.get(); }

  // The elements, without their shape; throws InvalidArgumentError if they are of another type, or
  // in the memory of a device. T is the type of an element (kIsElement), as it is written above:
  // neither const nor another type of the same size.
  template <typename T>
  requires kIsElement<T> std::span<T> as() {
    check_readable(kDataTypeOf<T>);
    return {static_cast<T*>(data()), static_cast<std::size_t>(elements())};
  }
  template <typename T>
  requires kIsElement<T> std::span<const T> as()
  const {
    check_readable(kDataTypeOf<T>);
    return {static_cast<const T*>(data()), static_cast<std::size_t>(elements())};
  }

  TensorView view() { return {data(), shape_, type_, device()}; }
  operator TensorView() { return view(); }  // NOLINT(google-explicit-constructor)
  operator ConstTensorView() const {        // NOLINT(google-explicit-constructor)
    return {data(), shape_, type_, device()};
  }

 private:
  friend HVD_API Tensor empty(std::vector<std::int64_t> shape, DataType type);
  void check_readable(DataType asked) const;

  std::unique_ptr<std::byte[], detail::FreeMemory> memory_;
  std::vector<std::int64_t> shape_ = {0};
  DataType type_ = DataType::uint8;
};

}  // namespace hvd
