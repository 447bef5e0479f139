// The forms of requests: their targets, and the bodies of bulk requests. Nothing in them is
// trusted. Pure, safe from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "rendezvous/store.h"

namespace hvd::rendezvous {

// A request's target, taken apart: /<scope>/<key>?option=value&... Each of scope and key is
// percent-decoded once, after the split at '/', so "%2F" is a slash inside a key; '+' stands for
// itself.
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

// The bodies of bulk requests and their answers, in the fields of base/wire.h.
//
//     POST /<scope>?write   count, then key and value of each
//     POST /<scope>?read    count, then each key
//     its answer            count, then for each key in the order asked: present (a byte), version,
//                           value

std::string encode_bulk_write(const std::map<std::string, std::string>& values);
Result<std::vector<std::pair<std::string, ValuePtr>>> decode_bulk_write(std::string_view body);

std::string encode_bulk_keys(const std::vector<std::string>& keys);
Result<std::vector<std::string>> decode_bulk_keys(std::string_view body);

// Null: the key is absent.
std::string encode_bulk_values(const std::vector<const Entry*>& entries);
struct BulkValue {
  std::string value;
  std::uint64_t version = 0;
};
Result<std::vector<std::optional<BulkValue>>> decode_bulk_values(std::string_view body);

}  // namespace hvd::rendezvous
