// The header before each message on a data connection, in the byte order of the machines that we
// run on. Both ends have proved that they belong to the job (base/security/handshake.h) before the
// first one travels; the checks here find corruption, not forgery.
#pragma once

#include <bit>
#include <cstdint>

namespace hvd::runtime {

struct MessageHeader {
  static constexpr std::uint32_t kMagic = 0x31445648;  // "HVD1"

  std::uint32_t magic = kMagic;
  std::uint32_t sequence = 0;  // of the messages of this connection and direction, from 0, wraps
  std::uint64_t slot = 0;
  std::uint64_t bytes = 0;  // that follow
};
static_assert(sizeof(MessageHeader) == 24);
static_assert(std::endian::native == std::endian::little);

}  // namespace hvd::runtime
