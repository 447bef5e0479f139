#include "base/printable.h"

#include <cstdint>

#include "base/text.h"

namespace hvd {
namespace {

// How many bytes the character at the front has, 0 if they are no UTF-8; and which one it is.
std::size_t decode(std::string_view text, std::uint32_t& character) {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  const unsigned first = byte(0);
  if (first < 0x80) {
    character = first;
    return 1;
  }
  const std::size_t size = first >= 0xf0 ? 4 : (first >= 0xe0 ? 3 : 2);
  constexpr std::uint32_t kFirst[5] = {0, 0, 0x80, 0x800, 0x10000};  // that needs so many bytes
  if (first < 0xc2 || first > 0xf4 || text.size() < size) return 0;
  character = first & (0x7fU >> size);
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0U) != 0x80U) return 0;
    character = (character << 6) | (byte(i) & 0x3fU);
  }
  const bool surrogate = character >= 0xd800 && character <= 0xdfff;
  return character < kFirst[size] || character > 0x10ffff || surrogate ? 0 : size;
}

bool is_control(std::uint32_t character) {
  const auto is_between = [&](std::uint32_t first, std::uint32_t last) {
    return character >= first && character <= last;
  };
  // Line and paragraph separators, and all that changes the direction of writing: the marks
  // (U+061C, U+200E, U+200F), embeddings and overrides, isolates.
  return is_between(0, 0x1f) || is_between(0x7f, 0x9f) || character == 0x61c ||
         is_between(0x200e, 0x200f) || is_between(0x2028, 0x202e) || is_between(0x2066, 0x2069);
}

void escape(unsigned char byte, std::string& out) {
  switch (byte) {
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      out += "\\x";
      append_hex(out, {reinterpret_cast<const char*>(&byte), 1});
  }
}

std::string shown(std::string_view text, std::string_view kept) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    std::uint32_t character = 0;
    const std::size_t size = decode(text, character);
    const bool plain =
        size > 0 && (!is_control(character) || kept.find(text[0]) != std::string_view::npos);
    const std::size_t used = size == 0 ? 1 : size;
    if (plain) {
      out += text.substr(0, used);
    } else {
      for (const char byte : text.substr(0, used)) escape(static_cast<unsigned char>(byte), out);
    }
    text.remove_prefix(used);
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text) { return shown(text, {}); }

std::string printable_lines(std::string_view text) { return shown(text, "\n\t"); }

std::string printable_word(std::string_view word) {
  if (printable(word) == word) return shell_quote(word);
  std::string escaped;
  for (const char c : word) {
    if (c == '\'' || c == '\\') escaped += '\\';
    escaped += c;
  }
  return "$'" + printable(escaped) + "'";
}

std::string quoted(std::string_view text, std::size_t most) {
  std::string result = "\"" + printable(text.substr(0, most));
  if (text.size() > most) result += "...";
  return result + "\"";
}

}  // namespace hvd
