// The connecting side of one data connection: connects, proves that it belongs to the job, and
// checks that it has reached the rank it meant. Never blocks; for one thread, the connector's.
#pragma once

#include <optional>
#include <string>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/security/handshake.h"
#include "base/socket.h"
#include "base/status.h"
#include "runtime/net/connection.h"

namespace hvd::runtime {

class OutboundHandshake {
 public:
  enum class Progress { under_way, there, again };

  OutboundHandshake(const SocketAddress& where, const Token& token, std::string_view purpose,
                    const HandshakeIdentity& self, const HandshakeIdentity& peer)
      : where_(where), peer_(peer.name), handshake_(token, purpose, self, peer) {}

  Status start();
  int fd() const { return fd_.get(); }
  bool wants_to_write() const { return step_ == Step::connecting; }
  // Something happened on the descriptor. `again`: the other end let go before it had answered, as
  // one does that has no room: try anew. An error is for ever.
  Result<Progress> handle();
  // Once there.
  ProvedSocket take() { return {std::move(fd_), std::move(*keys_)}; }

 private:
  enum class Step { connecting, challenge, verdict };
  Result<Progress> read_frame();

  SocketAddress where_;
  std::string peer_;
  HandshakeConnector handshake_;
  UniqueFd fd_;
  std::optional<SessionKeys> keys_;
  Step step_ = Step::connecting;
  std::string bytes_;  // of the frame that is arriving
};

}  // namespace hvd::runtime
