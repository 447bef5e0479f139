#include "base/security/sealing.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <openssl/evp.h>

namespace hvd {
namespace {

constexpr std::size_t kKeyBytes = 16;
// GMAC is faster than memory, and OpenSSL asks for no byte before it needs it. So it is given so
// many at a time, while the next ones are on their way to the caches. 4 GB of memory, in GB/s: 5.3
// at once, 8.3 so, 6.8 with 4 KB at a time, and 11 where all is in a cache. Encryption is slower
// than memory, and than itself in pieces.
constexpr std::size_t kAuthenticatedAtOnce = 1536;
constexpr std::size_t kCacheLine = 64;
constexpr std::array<std::string_view, 3> kProtectionNames{"none", "integrity", "encrypted"};

unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* raw(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}

void fetch(std::span<const std::byte> bytes) {
  for (std::size_t at = 0; at < bytes.size(); at += kCacheLine) __builtin_prefetch(&bytes[at]);
}

// Where OpenSSL cannot encrypt, nothing may be sent. It fails only for want of memory.
void must(bool fine) {
  if (fine) return;
  std::fputs(
      "hvd: OpenSSL cannot protect a connection: memory is short (ulimit -v, or the limit of a "
      "control group)\n",
      stderr);
  std::abort();
}

}  // namespace

std::string_view name_of(Protection protection) {
  return kProtectionNames.at(static_cast<std::size_t>(protection));
}

std::optional<Protection> protection_named(std::string_view name) {
  const auto* const found = std::find(kProtectionNames.begin(), kProtectionNames.end(), name);
  if (found == kProtectionNames.end()) return std::nullopt;
  return static_cast<Protection>(found - kProtectionNames.begin());
}

struct RecordCipher::Context {
  EVP_CIPHER_CTX* cipher = EVP_CIPHER_CTX_new();
  Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() { EVP_CIPHER_CTX_free(cipher); }
};

RecordCipher::RecordCipher(const Token& key, Protection protection)
    : protection_(protection), key_(key), context_(std::make_unique<Context>()) {
  must(context_->cipher != nullptr);
  take_key();
}

RecordCipher::RecordCipher(RecordCipher&&) noexcept = default;
RecordCipher& RecordCipher::operator=(RecordCipher&&) noexcept = default;
RecordCipher::~RecordCipher() = default;

// The protection has a part in the key, so that ends which do not agree on it understand nothing.
void RecordCipher::take_key() {
  const Mac derive(key_);
  Digest material = derive({"hvd record key", name_of(protection_)});
  must(EVP_CipherInit_ex(context_->cipher, EVP_aes_128_gcm(), nullptr, material.data(), nullptr,
                         1) == 1);
  std::copy_n(material.begin() + kKeyBytes, base_.size(), base_.begin());
  wipe(material);

  Digest next = derive({"hvd next record key"});
  key_ = *Token::from_bytes(as_view(next));
  wipe(next);
}

// A nonce is the base with the record's number in its last eight bytes (as TLS 1.3 makes them, RFC
// 8446, 5.3). It never repeats under one key.
void RecordCipher::begin_record(bool sealing) {
  if (records_ > 0 && records_ % kRecordsPerKey == 0) take_key();
  auto nonce = base_;
  for (std::size_t i = 0; i < sizeof(records_); ++i) {
    nonce.at(nonce.size() - 1 - i) ^= static_cast<unsigned char>(records_ >> (8 * i));
  }
  ++records_;
  must(EVP_CipherInit_ex(context_->cipher, nullptr, nullptr, nullptr, nonce.data(),
                         sealing ? 1 : 0) == 1);
}

void RecordCipher::authenticate(std::span<const std::byte> bytes) {
  auto piece = bytes.first(std::min(bytes.size(), kAuthenticatedAtOnce));
  fetch(piece);
  while (!piece.empty()) {
    bytes = bytes.subspan(piece.size());
    const auto next = bytes.first(std::min(bytes.size(), kAuthenticatedAtOnce));
    fetch(next);
    int length = 0;
    must(EVP_CipherUpdate(context_->cipher, nullptr, &length, raw(piece.data()),
                          static_cast<int>(piece.size())) == 1);
    piece = next;
  }
}

RecordCipher::Tag RecordCipher::seal(std::span<const std::byte> clear, std::byte* sealed) {
  begin_record(true);
  auto* const cipher = context_->cipher;
  int length = 0;
  if (hides()) {
    must(EVP_CipherUpdate(cipher, raw(sealed), &length, raw(clear.data()),
                          static_cast<int>(clear.size())) == 1);
  } else {
    authenticate(clear);
  }
  std::array<unsigned char, kTagBytes> end{};
  must(EVP_CipherFinal_ex(cipher, end.data(), &length) == 1);
  Tag tag;
  must(EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_GET_TAG, kTagBytes, tag.data()) == 1);
  return tag;
}

bool RecordCipher::open(std::span<std::byte> record, const Tag& tag) {
  begin_record(false);
  auto* const cipher = context_->cipher;
  Tag expected = tag;
  must(EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_SET_TAG, kTagBytes, expected.data()) == 1);
  int length = 0;
  if (hides()) {
    must(EVP_CipherUpdate(cipher, raw(record.data()), &length, raw(record.data()),
                          static_cast<int>(record.size())) == 1);
  } else {
    authenticate(record);
  }
  std::array<unsigned char, kTagBytes> end{};
  return EVP_CipherFinal_ex(cipher, end.data(), &length) == 1;
}

}  // namespace hvd
