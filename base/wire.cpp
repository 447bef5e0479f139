#include "base/wire.h"

#include <bit>

#include "base/text.h"

namespace hvd {

WireWriter& WireWriter::integer(std::uint64_t value, int width) {
  for (int i = 0; i < width; ++i) bytes_ += static_cast<char>(value >> (8 * i));
  return *this;
}

WireWriter& WireWriter::f64(double value) { return u64(std::bit_cast<std::uint64_t>(value)); }

WireWriter& WireWriter::varint(std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
  bytes_ += static_cast<char>(value);
  return *this;
}

WireWriter& WireWriter::str(std::string_view value) {
  u32(static_cast<std::uint32_t>(value.size()));
  bytes_ += value;
  return *this;
}

WireWriter& WireWriter::raw(std::string_view value) {
  bytes_ += value;
  return *this;
}

WireWriter& WireWriter::strings(const std::vector<std::string>& values) {
  u32(static_cast<std::uint32_t>(values.size()));
  for (const auto& value : values) str(value);
  return *this;
}

std::uint64_t WireReader::integer(std::size_t width) {
  if (left_.size() < width) {
    failed_ = true;
    left_ = {};
    return 0;
  }
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < width; ++i) {
    value |= static_cast<std::uint64_t>(static_cast<unsigned char>(left_[i])) << (8 * i);
  }
  left_.remove_prefix(width);
  return value;
}

double WireReader::f64() { return std::bit_cast<double>(u64()); }

std::uint64_t WireReader::varint() {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const std::uint64_t byte = u8();
    const std::uint64_t bits = byte & 0x7f;
    value |= bits << shift;
    if (bits << shift >> shift != bits) break;  // more than 64 bits
    if (byte < 0x80) return failed_ ? 0 : value;
  }
  failed_ = true;
  left_ = {};
  return 0;
}

std::string_view WireReader::view() { return raw(u32()); }

std::string_view WireReader::raw(std::uint64_t size) {
  if (size > left_.size()) {
    failed_ = true;
    left_ = {};
    return {};
  }
  const auto bytes = left_.substr(0, size);
  left_.remove_prefix(size);
  return bytes;
}

std::vector<std::string> WireReader::strings() {
  std::vector<std::string> values;
  // Each string takes at least the four bytes of its length, so a lie about the count ends soon.
  for (std::uint32_t left = u32(); left > 0 && !failed_; --left) values.push_back(str());
  return values;
}

Status WireReader::finish(std::string_view what) const {
  if (failed_) return {Code::data_loss, cat(what, ": the message ends too early")};
  if (!left_.empty()) return {Code::data_loss, cat(what, ": ", left_.size(), " bytes too many")};
  return {};
}

}  // namespace hvd
