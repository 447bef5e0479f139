// Words that all calls share: element types, reduce operations, tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace hvd {

enum class DataType : std::uint8_t {
  boolean,
  uint8,
  int8,
  uint16,
  int16,
  int32,
  int64,
  float16,
  bfloat16,
  float32,
  float64,
};

// Bytes of one element.
constexpr std::size_t size_of(DataType type) {
  switch (type) {
    case DataType::boolean:
    case DataType::uint8:
    case DataType::int8:
      return 1;
    case DataType::uint16:
    case DataType::int16:
    case DataType::float16:
    case DataType::bfloat16:
      return 2;
    case DataType::int32:
    case DataType::float32:
      return 4;
    case DataType::int64:
    case DataType::float64:
      return 8;
  }
  return 0;
}

enum class ReduceOp : std::uint8_t {
  average = 0,
  sum = 1,
  adasum = 2,
  min = 3,
  max = 4,
  product = 5
};
inline constexpr ReduceOp Average = ReduceOp::average;
inline constexpr ReduceOp Sum = ReduceOp::sum;
inline constexpr ReduceOp Min = ReduceOp::min;
inline constexpr ReduceOp Max = ReduceOp::max;
inline constexpr ReduceOp Product = ReduceOp::product;

// Where elements lie: in the memory of this process, or on the CUDA device of this number.
struct Device {
  static constexpr int kHost = -1;
  int cuda = kHost;
  bool is_host() const { return cuda == kHost; }
  friend bool operator==(const Device&, const Device&) = default;
};

// What a reduction sends of float32 and float64 elements: themselves, or half-precision copies. The
// sum is made in the type that is sent.
enum class Compression : std::uint8_t { none = 0, float16 = 1, bfloat16 = 2 };

// Elements in memory that the caller owns. `shape` is what ranks must agree on; elements are
// contiguous.
struct TensorView {
  void* data = nullptr;
  std::vector<std::int64_t> shape;
  DataType type = DataType::float32;
  Device device = {};

  std::int64_t elements() const {
    std::int64_t count = 1;
    for (const auto extent : shape) count *= extent;
    return count;
  }
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * size_of(type); }
};

template <typename T>
inline constexpr bool kIsElement = false;
template <typename T>
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
HVD_ELEMENT(float, float32);
HVD_ELEMENT(double, float64);
#undef HVD_ELEMENT

// A one-dimensional view of a span's elements.
template <typename T>
requires kIsElement<T> TensorView tensor_of(std::span<T> elements) {
  return {elements.data(), {static_cast<std::int64_t>(elements.size())}, kDataTypeOf<T>};
}

}  // namespace hvd
