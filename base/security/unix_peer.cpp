#include "base/security/unix_peer.h"

namespace hvd {

std::optional<ucred> unix_peer(int socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
  return peer;
}

}  // namespace hvd
