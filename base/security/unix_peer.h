// Which process is at the other end of a Unix socket, as the system knows it. Safe from any thread.
#pragma once

#include <optional>
#include <sys/socket.h>

namespace hvd {

// The process at the other end of a socket: if the socket was accepted, the one that connected, and
// else the one that listens, with its user at the moment when it began to. nullopt: the system does
// not say.
std::optional<ucred> unix_peer(int socket);

}  // namespace hvd
