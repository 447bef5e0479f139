// The connecting side of the handshake: both sides prove to each other that they hold the world's
// key. Blocks; safe from any thread.
#pragma once

#include <chrono>
#include <string_view>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/security/crypto.h"
#include "base/security/handshake.h"
#include "base/socket.h"
#include "base/status.h"
#include "runtime/net/connection.h"

namespace hvd::runtime {

// The purpose of handshakes on connections of the control tree.
inline constexpr std::string_view kTreePurpose = "coordinator";

// Both functions return aborted when the descriptor `interrupt` becomes readable; -1: no
// descriptor.

// Runs the handshake on an existing connection. Reads not a byte beyond it. Returns the keys for
// what follows.
Result<SessionKeys> authenticate(int fd, const Token& token, std::string_view purpose,
                                 const HandshakeIdentity& self, const HandshakeIdentity& peer,
                                 TimePoint deadline, int interrupt = -1);
// Short enough that the peer cannot have begun to form another world at the same port.
inline constexpr std::chrono::milliseconds kConnectAgainFor{500};
// Connects and runs the handshake. The connection is returned with nothing read beyond it. If it is
// lost before the peer has answered (unavailable), a few more attempts follow, within `again_for`.
Result<ProvedSocket> connect_and_authenticate(
    const SocketAddress& where, const Token& token, const HandshakeIdentity& self,
    const HandshakeIdentity& peer, TimePoint deadline, int interrupt = -1,
    std::chrono::milliseconds again_for = kConnectAgainFor);

}  // namespace hvd::runtime
