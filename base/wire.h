// Fields of a message as bytes: integers little-endian, strings with a 32-bit length before them.
// The reader trusts nothing: it never reads past the end, and an impossible length is a failure,
// not an allocation. Both are values for one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hvd {

class WireWriter {
 public:
  WireWriter& u8(std::uint8_t value) { return integer(value, 1); }
  WireWriter& u16(std::uint16_t value) { return integer(value, 2); }
  WireWriter& u32(std::uint32_t value) { return integer(value, 4); }
  WireWriter& u64(std::uint64_t value) { return integer(value, 8); }
  WireWriter& i32(std::int32_t value) { return integer(static_cast<std::uint32_t>(value), 4); }
  WireWriter& i64(std::int64_t value) { return integer(static_cast<std::uint64_t>(value), 8); }
  WireWriter& f64(double value);
  WireWriter& boolean(bool value) { return integer(value ? 1 : 0, 1); }
  // Seven bits a byte, the lowest first: small numbers take one byte, the largest ten (LEB128).
  WireWriter& varint(std::uint64_t value);
  WireWriter& str(std::string_view value);
  WireWriter& raw(std::string_view value);  // without a length
  WireWriter& strings(const std::vector<std::string>& values);

  const std::string& bytes() const { return bytes_; }
  std::string take() { return std::move(bytes_); }

 private:
  WireWriter& integer(std::uint64_t value, int width);
  std::string bytes_;
};

// After the first field that does not fit, every further read gives zero or nothing, and finish()
// says so.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : left_(bytes) {}

  std::uint8_t u8() { return static_cast<std::uint8_t>(integer(1)); }
  std::uint16_t u16() { return static_cast<std::uint16_t>(integer(2)); }
  std::uint32_t u32() { return static_cast<std::uint32_t>(integer(4)); }
  std::uint64_t u64() { return integer(8); }
  std::int32_t i32() { return static_cast<std::int32_t>(integer(4)); }
  std::int64_t i64() { return static_cast<std::int64_t>(integer(8)); }
  double f64();
  bool boolean() { return integer(1) != 0; }
  std::uint64_t varint();
  std::string_view view();  // a string that lies in the bytes given to the constructor
  std::string_view raw(std::uint64_t size);
  std::string str() { return std::string(view()); }
  std::vector<std::string> strings();

  bool failed() const { return failed_; }
  bool at_end() const { return left_.empty(); }
  // ok if every field was there and nothing is left; else data_loss that names `what`.
  Status finish(std::string_view what) const;

 private:
  std::uint64_t integer(std::size_t width);
  std::string_view left_;
  bool failed_ = false;
};

}  // namespace hvd
