// The protection of one connection's bytes after its handshake. They travel in records. Each has a
// tag of 16 bytes, made with a key that only holders of the world's key can derive, and a number in
// the order of sending, so that a record that was altered, forged, lost, repeated or moved is found
// when it is opened. AES-128-GCM (NIST SP 800-38D) by OpenSSL: `integrity` authenticates the bytes
// and leaves them as they are (GMAC), `encrypted` hides them as well.
//
// Either end derives the keys from the world's key and both nonces of the handshake
// (base/security/handshake.h), one for each direction, and anew after every kRecordsPerKey records,
// so that no key protects more than some 4 GB.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "base/security/crypto.h"

namespace hvd {

enum class Protection : std::uint8_t { none, integrity, encrypted };

std::string_view name_of(Protection protection);
std::optional<Protection> protection_named(std::string_view name);

// The keys of a connection, as one of its ends has them.
struct SessionKeys {
  Token to_send;
  Token to_receive;
};

// One direction of a connection, at one of its ends. For one thread at a time.
class RecordCipher {
 public:
  static constexpr std::size_t kTagBytes = 16;
  static constexpr std::uint64_t kRecordsPerKey = std::uint64_t{1} << 16;
  using Tag = std::array<std::byte, kTagBytes>;

  // `protection` is integrity or encrypted.
  RecordCipher(const Token& key, Protection protection);
  RecordCipher(RecordCipher&&) noexcept;
  RecordCipher& operator=(RecordCipher&&) noexcept;
  ~RecordCipher();

  bool hides() const { return protection_ == Protection::encrypted; }
  // The tag of the next record to be sent. Encrypted, its bytes are written to `sealed`, which has
  // room for as many, and may be where `clear` is. With integrity alone `sealed` is not used.
  Tag seal(std::span<const std::byte> clear, std::byte* sealed);
  // Checks the next record that has arrived, and decrypts it where it lies. False: it is not what
  // the other end has sent, and its bytes must not be used.
  [[nodiscard]] bool open(std::span<std::byte> record, const Tag& tag);

 private:
  struct Context;
  void begin_record(bool sealing);
  void authenticate(std::span<const std::byte> bytes);
  void take_key();

  Protection protection_;
  Token key_;
  std::array<unsigned char, 12> base_{};  // of the records' nonces
  std::uint64_t records_ = 0;
  std::unique_ptr<Context> context_;
};

}  // namespace hvd
