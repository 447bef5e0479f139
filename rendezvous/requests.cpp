#include "rendezvous/requests.h"

#include <cmath>

#include "base/text.h"
#include "base/wire.h"

namespace hvd::rendezvous {
namespace {

bool percent_decode(std::string_view text, std::string& out) {
  out.clear();
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return false;
    const int high = hex_value(text[i + 1]);
    const int low = hex_value(text[i + 2]);
    if (high < 0 || low < 0) return false;
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return true;
}

Status parse_option(std::string_view option, Target& target) {
  const std::size_t equals = option.find('=');
  const auto name = option.substr(0, equals);
  const auto value = equals == std::string_view::npos ? "" : option.substr(equals + 1);
  const auto wrong = [&](std::string_view wanted) {
    return Status(Code::invalid_argument, cat("option ", percent_encode(name), " is \"",
                                              percent_encode(value), "\", not ", wanted));
  };

  if (name == "wait") {
    const auto seconds = parse_number<double>(value);
    constexpr double kMost = 1e9;
    if (!seconds || !std::isfinite(*seconds) || *seconds < 0 || *seconds > kMost) {
      return wrong("a number of seconds");
    }
    target.wait = std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(*seconds * 1000)));
  } else if (name == "newer" || name == "expected") {
    const auto version = parse_number<std::uint64_t>(value);
    if (!version) return wrong("a version");
    if (name == "newer") {
      target.newer_than = *version;
    } else {
      target.expected = *version;
    }
  } else if (option == "read") {
    target.read = true;
  } else if (option == "write") {
    target.write = true;
  } else {
    return {Code::invalid_argument, cat("there is no option \"", percent_encode(option), "\"")};
  }
  return {};
}

}  // namespace

Status parse_target(std::string_view text, Target& target) {
  target.wait.reset();
  target.expected.reset();
  target.newer_than = 0;
  target.read = target.write = false;
  target.scope.clear();
  target.key.clear();

  const auto shape = [] {
    return Status(Code::invalid_argument, "the path is not of the form /<scope>/<key>");
  };
  if (!text.starts_with('/')) return shape();
  const std::size_t question = text.find('?');
  std::string_view path =
      text.substr(1, question == std::string_view::npos ? question : question - 1);
  const std::size_t slash = path.find('/');
  const auto scope = path.substr(0, slash);
  const auto key = slash == std::string_view::npos ? "" : path.substr(slash + 1);
  if (scope.empty()) return shape();
  if (slash != std::string_view::npos && key.empty()) {
    return {Code::invalid_argument, "the path is not of the form /<scope>/<key>: the key is empty"};
  }
  if (key.find('/') != std::string_view::npos) {
    return {Code::invalid_argument,
            "the path has more than two parts; a slash inside a key is written %2F"};
  }
  if (!percent_decode(scope, target.scope) || !percent_decode(key, target.key)) {
    return {Code::invalid_argument, "a % in the path is not followed by two hexadecimal digits"};
  }
  if (question == std::string_view::npos) return {};
  std::string_view query = text.substr(question + 1);
  while (!query.empty()) {
    const std::size_t end = query.find('&');
    HVD_RETURN_IF_ERROR(parse_option(query.substr(0, end), target));
    query = end == std::string_view::npos ? "" : query.substr(end + 1);
  }
  return {};
}

std::string percent_encode(std::string_view name) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string text;
  text.reserve(name.size());
  for (const char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~' || c == ':';
    if (plain) {
      text += c;
    } else {
      text += '%';
      text += kDigits[static_cast<unsigned char>(c) >> 4];
      text += kDigits[static_cast<unsigned char>(c) & 15];
    }
  }
  return text;
}

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
