#include "runtime/trace/json_text.h"

#include <array>

#include "base/text.h"

namespace hvd::runtime::trace {
namespace {

// The length of the UTF-8 character that `text` begins with; 0 if it is invalid.
std::size_t character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0U) != 0x80) return 0;
  }
  // Overlong forms, surrogates, and code points beyond U+10FFFF.
  if (first == 0xE0 && byte(1) < 0xA0) return 0;
  if (first == 0xED && byte(1) > 0x9F) return 0;
  if (first == 0xF0 && byte(1) < 0x90) return 0;
  if (first == 0xF4 && byte(1) > 0x8F) return 0;
  return length;
}

}  // namespace

void append_quoted(std::string& out, std::string_view text) {
  out += '"';

  while (!text.empty()) {
    const auto c = static_cast<unsigned char>(text.front());
    std::size_t length = 1;
    if (c == '"' || c == '\\') {
      out += '\\';
      out += text.front();
    } else if (c < 0x20 || c == 0x7F) {
      out += "\\u00";
      append_hex(out, text.substr(0, 1));
    } else if (length = character(text); length == 0) {
      out += "\\ufffd";
      length = 1;
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length);
  }

  out += '"';
}

void append_thousandths(std::string& out, Nanoseconds time) {
  append_number(out, time / 1000);
  const auto rest = static_cast<int>(time % 1000);
  const std::array<char, 4> tail{'.', static_cast<char>('0' + rest / 100),
                                 static_cast<char>('0' + rest / 10 % 10),
                                 static_cast<char>('0' + rest % 10)};
  out.append(tail.data(), tail.size());
}

}  // namespace hvd::runtime::trace
