// The input of a fuzz target, taken apart, and the checks of its properties. A target is a function
// LLVMFuzzerTestOneInput(), one in each file of tests/fuzz/targets: libFuzzer calls it with bytes
// that it makes up (scripts/fuzz), and corpus_test.cpp with those of tests/fuzz/corpus. For one
// thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hvd::fuzz {

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size)
      : left_(reinterpret_cast<const char*>(data), size) {}

  // 0 at the end.
  std::uint8_t byte() {
    if (left_.empty()) return 0;
    const auto value = static_cast<std::uint8_t>(left_.front());
    left_.remove_prefix(1);
    return value;
  }
  // Up to `most` bytes.
  std::string_view take(std::size_t most) {
    const auto taken = left_.substr(0, most);
    left_.remove_prefix(taken.size());
    return taken;
  }
  // The next line, without its end.
  std::string_view line() {
    const auto taken = left_.substr(0, left_.find('\n'));
    left_.remove_prefix(std::min(left_.size(), taken.size() + 1));
    return taken;
  }
  std::string_view rest() const { return left_; }
  bool at_end() const { return left_.empty(); }

 private:
  std::string_view left_;
};

// A property that does not hold is a finding: the process ends with SIGABRT.
inline void must(bool holds, const char* property) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: this does not hold: %s\n", property);
  std::abort();
}

// What a person reads on a terminal has no control characters, whatever the input had.
inline void must_be_printable(std::string_view text) {
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    must((code >= 0x20 && code != 0x7f) || c == '\n', "what is shown has no control characters");
  }
}

// An error has a code and says something. Its text may hold what the input held: hvdrun and the log
// make it printable where they show it.
inline void must_explain(const Status& error) {
  must(!error.ok(), "what is refused has an error");
  must(!error.message().empty(), "an error says what is wrong");
}

}  // namespace hvd::fuzz
