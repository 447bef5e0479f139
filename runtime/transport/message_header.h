// The header before each message on a data connection, in the byte order of the machines that we
// run on. Both ends have proved that they belong to the job (base/security/handshake.h) before the
// first one travels. What finds forgery are the tags of records (base/security/sealing.h); the
// checks here find mistakes.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace hvd::runtime {

struct MessageHeader {
  static constexpr std::uint32_t kMagic = 0x31445648;  // "HVD1"
  // On a protected connection the header is a record, and the bytes that follow are cut into
  // records of this size; the last one may be shorter. Large enough that the tags cost nothing, and
  // small enough for the caches.
  static constexpr std::size_t kRecordBytes = std::size_t{64} << 10;

  std::uint32_t magic = kMagic;
  std::uint32_t sequence = 0;  // of the messages of this connection and direction, from 0, wraps
  std::uint64_t slot = 0;
  std::uint64_t bytes = 0;  // that follow
};
static_assert(sizeof(MessageHeader) == 24);
static_assert(std::endian::native == std::endian::little);

}  // namespace hvd::runtime
