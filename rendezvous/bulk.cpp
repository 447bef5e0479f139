#include "rendezvous/bulk.h"

#include "base/wire.h"

namespace hvd::rendezvous {
namespace {

constexpr std::string_view kWhat = "bulk request";

}  // namespace

std::string encode_bulk_write(const std::map<std::string, std::string>& values) {
  WireWriter writer;
  writer.u32(static_cast<std::uint32_t>(values.size()));
  for (const auto& [key, value] : values) writer.str(key).str(value);
  return writer.take();
}

Result<std::vector<std::pair<std::string, ValuePtr>>> decode_bulk_write(std::string_view body) {
  WireReader reader(body);
  const std::uint32_t count = reader.u32();
  std::vector<std::pair<std::string, ValuePtr>> values;
  for (std::uint32_t i = 0; i < count && !reader.failed(); ++i) {
    std::string key = reader.str();
    std::string value = reader.str();
    if (!reader.failed()) values.emplace_back(std::move(key), make_value(std::move(value)));
  }
  HVD_RETURN_IF_ERROR(reader.finish(kWhat));
  return values;
}

std::string encode_bulk_keys(const std::vector<std::string>& keys) {
  WireWriter writer;
  writer.strings(keys);
  return writer.take();
}

Result<std::vector<std::string>> decode_bulk_keys(std::string_view body) {
  WireReader reader(body);
  auto keys = reader.strings();
  HVD_RETURN_IF_ERROR(reader.finish(kWhat));
  return keys;
}

std::string encode_bulk_values(const std::vector<const Entry*>& entries) {
  WireWriter writer;
  writer.u32(static_cast<std::uint32_t>(entries.size()));
  for (const Entry* const entry : entries) {
    writer.boolean(entry != nullptr).u64(entry == nullptr ? 0 : entry->version);
    writer.str(entry == nullptr ? std::string_view() : entry->value->bytes);
  }
  return writer.take();
}

Result<std::vector<std::optional<BulkValue>>> decode_bulk_values(std::string_view body) {
  WireReader reader(body);
  const std::uint32_t count = reader.u32();
  std::vector<std::optional<BulkValue>> values;
  for (std::uint32_t i = 0; i < count && !reader.failed(); ++i) {
    const bool present = reader.boolean();
    const std::uint64_t version = reader.u64();
    std::string value = reader.str();
    values.push_back(present ? std::optional(BulkValue{std::move(value), version}) : std::nullopt);
  }
  HVD_RETURN_IF_ERROR(reader.finish("bulk answer"));
  return values;
}

}  // namespace hvd::rendezvous
