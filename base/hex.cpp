#include "base/hex.h"

namespace hvd {

void append_hex(std::string& out, std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (const char c : bytes) {
    out += kDigits[static_cast<unsigned char>(c) >> 4];
    out += kDigits[static_cast<unsigned char>(c) & 15];
  }
}

std::string to_hex(std::string_view bytes) {
  std::string digits;
  digits.reserve(2 * bytes.size());
  append_hex(digits, bytes);
  return digits;
}

int hex_value(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

Result<std::string> from_hex(std::string_view digits) {
  const Status wrong(Code::invalid_argument, "not hexadecimal");
  if (digits.size() % 2 != 0) return wrong;
  std::string bytes;
  bytes.reserve(digits.size() / 2);
  for (std::size_t i = 0; i < digits.size(); i += 2) {
    const int high = hex_value(digits[i]);
    const int low = hex_value(digits[i + 1]);
    if (high < 0 || low < 0) return wrong;
    bytes += static_cast<char>(high * 16 + low);
  }
  return bytes;
}

}  // namespace hvd
