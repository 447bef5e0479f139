// Fast formatting of JSON values.
#pragma once

#include <charconv>
#include <string>
#include <string_view>

#include "runtime/core/activity.h"

namespace hvd::runtime::trace {

// Appends a JSON string, quotes included. Invalid UTF-8 becomes U+FFFD: names are chosen by the
// program.
void append_quoted(std::string& out, std::string_view text);

template <typename Integer>
void append_number(std::string& out, Integer value) {
  char digits[24];  // NOLINT(cppcoreguidelines-avoid-c-arrays,modernize-avoid-c-arrays)
  const auto end = std::to_chars(std::begin(digits), std::end(digits), value).ptr;
  out.append(std::begin(digits), end);
}

// Appends non-negative nanoseconds as microseconds: "12.345".
void append_thousandths(std::string& out, Nanoseconds time);

}  // namespace hvd::runtime::trace
