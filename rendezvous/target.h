// A request's target, taken apart: /<scope>/<key>?option=value&... Each of scope and key is
// percent-decoded once, after the split at '/', so "%2F" is a slash inside a key; '+' stands for
// itself. Pure, safe from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hvd::rendezvous {

struct Target {
  std::string scope;
  std::string key;  // empty: the target names a scope only (bulk requests)
  std::optional<std::chrono::milliseconds> wait;  // ?wait=SECONDS
  std::uint64_t newer_than = 0;                   // ?newer=VERSION
  std::optional<std::uint64_t> expected;          // ?expected=VERSION
  bool read = false;                              // ?read
  bool write = false;                             // ?write
};

// Fills `target` (so that its memory is used again), or says what is wrong with the text.
Status parse_target(std::string_view text, Target& target);

// Everything but letters, digits and "-._~:" as %XX: what a client writes, and how a name is shown.
std::string percent_encode(std::string_view name);

}  // namespace hvd::rendezvous
