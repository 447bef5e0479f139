// The bodies of bulk requests and their answers, in the fields of base/wire.h. Nothing in them is
// trusted. Pure, safe from any thread.
//
//     POST /<scope>?write   count, then key and value of each
//     POST /<scope>?read    count, then each key
//     its answer            count, then for each key in the order asked: present (a byte), version,
//                           value
#pragma once

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
