// Pieces of JSON, written where speed counts.
#pragma once

#include <charconv>
#include <string>
#include <string_view>

#include "runtime/core/activity.h"

namespace hvd::runtime::trace {

// As a JSON string, quotes included. What is no UTF-8 becomes U+FFFD: names are the program's.
void append_quoted(std::string& out, std::string_view text);

template <typename Integer>
void append_number(std::string& out, Integer value) {
  char digits[24];  // NOLINT(cppcoreguidelines-avoid-c-arrays,modernize-avoid-c-arrays)
  const auto end = std::to_chars(std::begin(digits), std::end(digits), value).ptr;
  out.append(std::begin(digits), end);
}

// Nanoseconds, 0 or more, as thousands of them: "12.345".
void append_thousandths(std::string& out, Nanoseconds time);

}  // namespace hvd::runtime::trace
