// Small text tools that more than one room needs. All are pure and safe from any thread.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstring>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hvd {

// cat("rank ", 3, " of ", 4) == "rank 3 of 4"
template <typename... Args>
std::string cat(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return std::move(out).str();
}

// Overwrites a secret, also where the compiler thinks that nobody reads it any more.
inline void wipe(void* secret, std::size_t size) { ::explicit_bzero(secret, size); }
void wipe(std::string& secret);  // all that it has room for; it is empty afterwards

std::string_view trim(std::string_view text);
// "a,b,,c" -> {"a", "b", "", "c"}; an empty text gives no fields.
std::vector<std::string> split(std::string_view text, char separator);
std::string join(const std::vector<std::string>& parts, std::string_view separator);

// The letters of ASCII made small; all else as it is, whatever the locale.
std::string lower_case(std::string_view text);

// The whole text as a number; nothing if any of it is not part of one, or it does not fit.
template <typename T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The candidate that a person who typed `word` most likely meant: one that is a slip or two of the
// fingers away, the fewer the shorter the word is. Dashes in front do not count.
std::optional<std::string> nearest(std::string_view word,
                                   const std::vector<std::string>& candidates);

// `word` as one word of a POSIX shell: quoted if it has to be.
std::string shell_quote(std::string_view word);

// 1234567 -> "1,234,567"
std::string with_thousands(unsigned long long number);

// Two hexadecimal digits for each byte, in lower case.
void append_hex(std::string& out, std::string_view bytes);
std::string to_hex(std::string_view bytes);
// The value of a hexadecimal digit in either case; -1 for any other character.
int hex_value(char digit);
// invalid_argument if the length is odd or a character is not a hexadecimal digit.
Result<std::string> from_hex(std::string_view digits);

// Text in columns: a line for each row, all of the same number of cells: a column is as wide as its
// widest cell, and two spaces stand between columns. No line ends with spaces. The caller makes
// cells printable.
std::string text_table(const std::vector<std::vector<std::string>>& rows);

}  // namespace hvd
