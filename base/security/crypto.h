// The job's token and what is proved with it. The token is 256 random bits; workers get
// credentials that derive from it (base/protocol/credentials.h). It is never printed, and its bytes
// lie in memory for secrets (secret_memory.h). OpenSSL does the work.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/security/secret_memory.h"
#include "base/status.h"

namespace hvd {

using Digest = std::array<unsigned char, 32>;  // SHA-256

class Token {
 public:
  static constexpr std::size_t kSize = SecretBytes::kSize;

  static Token random();
  // From 32 raw bytes.
  static Result<Token> from_bytes(std::string_view bytes);
  // From 64 hexadecimal digits, as `hvdrun rendezvous` writes it to a token file.
  static Result<Token> from_hex(std::string_view digits);

  // The secret itself: only for the descriptors and files that carry it.
  std::string_view bytes() const { return {reinterpret_cast<const char*>(bytes_.data()), kSize}; }

 private:
  Token() = default;
  SecretBytes bytes_;
};

std::string random_bytes(std::size_t count);
std::string to_base64(std::string_view bytes);
Digest sha256(std::string_view bytes);
// 20 bytes; none if the system has no SHA-1. Only for the names of hosts in OpenSSH's known_hosts,
// whose format asks for it.
std::string hmac_sha1(std::string_view key, std::string_view bytes);
// Takes the same time wherever the first difference lies.
bool equal_in_constant_time(std::string_view a, std::string_view b);

// HMAC-SHA256 under one key. Each part is preceded by its length, so that ("ab", "c") and
// ("a", "bc") differ.
class Mac {
 public:
  explicit Mac(const Token& key) : key_(key) {}

  Digest operator()(std::initializer_list<std::string_view> parts) const;

 private:
  Token key_;
};

inline std::string_view as_view(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace hvd
