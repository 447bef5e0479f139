// Words that all calls share: what is asked for, element types, reduce operations, devices.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hvd {

// The operations that ranks do together.
enum class Collective : std::uint8_t {
  allreduce = 0,
  broadcast = 1,
  barrier = 2,
  allgather = 3,      // concatenates along the first dimension, which may differ between ranks
  alltoall = 4,       // rows of the first dimension, as many to each rank as its splits say
  reducescatter = 5,  // each rank keeps its rows of the sum; the first ranks get one more
  join = 6,           // this rank has no more work; it gives neutral elements to what others do
  add_process_set = 7,
  remove_process_set = 8,
  send_recv = 9,  // from one rank to another; the others take no part
};

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
  float8_e4m3,  // hvd/float8.h
  float8_e5m2,
};
inline constexpr int kDataTypes = 13;
constexpr bool is_float8(DataType type) {
  return type == DataType::float8_e4m3 || type == DataType::float8_e5m2;
}
constexpr bool is_floating_point(DataType type) { return type >= DataType::float16; }

// Bytes of one element.
constexpr std::size_t size_of(DataType type) {
  switch (type) {
    case DataType::boolean:
    case DataType::uint8:
    case DataType::int8:
    case DataType::float8_e4m3:
    case DataType::float8_e5m2:
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
inline constexpr ReduceOp Adasum = ReduceOp::adasum;
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

// The form in which a reduction sends float32 and float64 elements: themselves, or half-precision
// copies. The sum is made in the type that is sent.
enum class Compression : std::uint8_t { none = 0, float16 = 1, bfloat16 = 2 };

// Until when an input is not there yet: a stream of a device still writes it, say.
class ReadyEvent {
 public:
  virtual ~ReadyEvent() = default;
  virtual bool ready() const = 0;
  // For operations on the host, which block in it; those of a device wait on the device.
  virtual void wait() = 0;
};

}  // namespace hvd
