// How a member comes to its coordinator: connects, and both prove to each other that they hold the
// job's token. Blocks; safe from any thread.
#pragma once

#include <string_view>

#include "base/clock.h"
#include "base/security/crypto.h"
#include "base/security/handshake.h"
#include "base/socket.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace hvd::runtime {

// The purpose of handshakes on connections of the control tree.
inline constexpr std::string_view kTreePurpose = "coordinator";

// Both end with aborted when the descriptor `interrupt` can be read; -1: there is none.

// Proves on a connection that there is. Reads not a byte of what follows.
Status prove_membership(int fd, const Token& token, std::string_view purpose,
                        const HandshakeIdentity& self, const HandshakeIdentity& peer,
                        TimePoint deadline, int interrupt = -1);
// The connection, with nothing of what follows the handshake read from it.
Result<UniqueFd> connect_and_prove(const SocketAddress& where, const Token& token,
                                   const HandshakeIdentity& self, const HandshakeIdentity& peer,
                                   TimePoint deadline, int interrupt = -1);

}  // namespace hvd::runtime
