#include "base/security/crypto.h"

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/rand.h>

#include "base/security/random.h"
#include "base/text.h"

namespace hvd {
Token Token::random() {
  Token token;
  fill_random(token.bytes_.data(), kSize);
  return token;
}

Result<Token> Token::from_bytes(std::string_view bytes) {
  if (bytes.size() != kSize) {
    return Status(Code::invalid_argument, cat("a token has ", kSize, " bytes, not ", bytes.size()));
  }
  Token token;
  token.bytes_.assign(bytes.data());
  return token;
}

Result<Token> Token::from_hex(std::string_view digits) {
  auto bytes = hvd::from_hex(digits);
  if (!bytes.ok() || bytes->size() != kSize) {
    return Status(Code::invalid_argument, cat("a token is ", 2 * kSize, " hexadecimal digits"));
  }
  auto token = from_bytes(*bytes);
  wipe(*bytes);
  return token;
}

std::string random_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  fill_random(bytes.data(), count);
  return bytes;
}

std::string to_base64(std::string_view bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');
  const int length = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                     reinterpret_cast<const unsigned char*>(bytes.data()),
                                     static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(length));
  return text;
}

Digest sha256(std::string_view bytes) {
  Digest digest{};
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), nullptr, EVP_sha256(), nullptr) != 1)
    std::abort();
  return digest;
}

std::string hmac_sha1(std::string_view key, std::string_view bytes) {
  std::string digest(20, '\0');
  const auto* const raw = reinterpret_cast<const unsigned char*>(bytes.data());
  if (EVP_Q_mac(nullptr, "HMAC", nullptr, "SHA1", nullptr, key.data(), key.size(), raw,
                bytes.size(), reinterpret_cast<unsigned char*>(digest.data()), digest.size(),
                nullptr) == nullptr) {
    digest.clear();
  }
  return digest;
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

namespace {

// Looked up once, and never freed: other threads may be using it when the process ends.
EVP_MAC* hmac() {
  static EVP_MAC* const fetched = EVP_MAC_fetch(nullptr, "HMAC", nullptr);
  return fetched;
}

using MacContext = std::unique_ptr<EVP_MAC_CTX, decltype(&EVP_MAC_CTX_free)>;

MacContext begin_mac(const Token& key) {
  MacContext context(EVP_MAC_CTX_new(hmac()), EVP_MAC_CTX_free);
  std::string digest_name = "SHA256";
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string("digest", digest_name.data(), 0),
      OSSL_PARAM_construct_end()};
  const auto bytes = key.bytes();
  // Without HMAC-SHA256 nothing could be authenticated; there is no way to go on.
  if (!context || EVP_MAC_init(context.get(), reinterpret_cast<const unsigned char*>(bytes.data()),
                               bytes.size(), parameters) != 1) {
    std::abort();
  }
  return context;
}

}  // namespace

// The context has a copy of the key in ordinary memory, which is overwritten when it is freed: so
// none is kept from one use to the next.
Digest Mac::operator()(std::initializer_list<std::string_view> parts) const {
  const MacContext context = begin_mac(key_);
  Digest digest{};
  std::size_t length = 0;
  bool fine = true;
  for (const auto part : parts) {
    std::array<unsigned char, 8> size{};
    for (std::size_t i = 0; i < size.size(); ++i) {
      size[i] = static_cast<unsigned char>(static_cast<std::uint64_t>(part.size()) >> (8 * i));
    }
    fine = fine && EVP_MAC_update(context.get(), size.data(), size.size()) == 1 &&
           EVP_MAC_update(context.get(), reinterpret_cast<const unsigned char*>(part.data()),
                          part.size()) == 1;
  }
  fine = fine && EVP_MAC_final(context.get(), digest.data(), &length, digest.size()) == 1;
  if (!fine) std::abort();
  return digest;
}

}  // namespace hvd
