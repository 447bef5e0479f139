#include "base/wire.h"

#include <bit>

#include "base/text.h"

namespace hvd {

WireWriter& WireWriter::integer(std::uint64_t value, int width) {
  for (int i = 0; i < width; ++i) bytes_ += static_cast<char>(value >> (8 * i));
  return *this;
}

WireWriter& WireWriter::f64(double value) { return u64(std::bit_cast<std::uint64_t>(value)); }

WireWriter& WireWriter::str(std::string_view value) {
  u32(static_cast<std::uint32_t>(value.size()));
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

std::string_view WireReader::view() {
  const std::size_t length = u32();
  if (length > left_.size()) {
    failed_ = true;
    left_ = {};
    return {};
  }
  const auto text = left_.substr(0, length);
  left_.remove_prefix(length);
  return text;
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
