// The limits of one rendezvous server: how much it holds, and how long it waits. A request beyond a
// limit is refused with its own status code and a reason (docs/internals/rendezvous.md). A plain
// value.
#pragma once

#include <chrono>
#include <cstddef>

namespace hvd::rendezvous {

struct ServerLimits {
  std::size_t max_key = 512;                      // bytes
  std::size_t max_scope = 512;                    // bytes
  std::size_t max_value = std::size_t{16} << 20;  // bytes
  std::size_t max_bulk = std::size_t{64} << 20;   // bytes of one bulk request, or of its answer
  std::size_t max_scopes = 10'000;                // scopes at a time
  std::size_t max_total = std::size_t{1} << 30;   // bytes of keys and values, see kKeyOverhead
  std::size_t max_header = std::size_t{8} << 10;  // bytes of a request's header
  std::size_t max_connections = 20'000;
  // Those of them that have proved nothing yet, or less where the process may open few
  // files; and how long each of them may stay (base/security/pending_handshakes.h).
  std::size_t max_strangers = 1024;
  std::chrono::milliseconds stranger_timeout{15'000};
  std::chrono::milliseconds idle_timeout{120'000};    // between requests
  std::chrono::milliseconds receive_timeout{10'000};  // for a request that has begun
  std::chrono::milliseconds max_wait{600'000};        // of a blocking read
};

// The charge of max_total for each key beside its bytes and its value's: about what the store needs
// to remember it. Otherwise a million empty values would cost nothing.
inline constexpr std::size_t kKeyOverhead = 256;

}  // namespace hvd::rendezvous
