// The job's token and what is proved with it. The token is 256 random bits; workers get it by
// descriptor. It is never printed, and its bytes are wiped when the object goes. OpenSSL does the
// work.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hvd {

using Digest = std::array<unsigned char, 32>;  // SHA-256

class Token {
 public:
  static constexpr std::size_t kSize = 32;

  static Token random();
  // From 32 raw bytes.
  static Result<Token> from_bytes(std::string_view bytes);
  // From 64 hexadecimal digits, as `hvdrun rendezvous` writes it to a token file.
  static Result<Token> from_hex(std::string_view digits);

  Token(const Token&) = default;
  Token& operator=(const Token&) = default;
  ~Token();

  // The secret itself: only for the descriptors and files that carry it.
  std::string_view bytes() const { return {reinterpret_cast<const char*>(bytes_.data()), kSize}; }

 private:
  Token() = default;
  std::array<unsigned char, kSize> bytes_{};
};

std::string random_bytes(std::size_t count);
std::string to_base64(std::string_view bytes);
Digest sha256(std::string_view bytes);
// 20 bytes; none if the system has no SHA-1. Only for the names of hosts in OpenSSH's known_hosts,
// whose format asks for it.
std::string hmac_sha1(std::string_view key, std::string_view bytes);
// Overwrites a secret, also where the compiler thinks that nobody reads it any more.
void wipe(Digest& secret);
// Takes the same time wherever the first difference lies.
bool equal_in_constant_time(std::string_view a, std::string_view b);

// HMAC-SHA256 under one key, prepared once and used often. Each part is preceded by its length, so
// that ("ab", "c") and ("a", "bc") differ. For one thread at a time.
class Mac {
 public:
  explicit Mac(const Token& key);
  Mac(Mac&&) noexcept;
  Mac& operator=(Mac&&) noexcept;
  ~Mac();

  Digest operator()(std::initializer_list<std::string_view> parts) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

inline std::string_view as_view(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace hvd
