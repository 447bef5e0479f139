// Which process is at the other end of a Unix socket, as the system knows it. Safe from any thread.
#pragma once

#include <optional>
#include <sys/socket.h>

namespace hvd {

// Of a socket that was accepted: the process that connected. Of one that has connected: the process
// that listens, with its user at the moment when it began to. nullopt: the system does not say.
std::optional<ucred> unix_peer(int socket);

}  // namespace hvd
