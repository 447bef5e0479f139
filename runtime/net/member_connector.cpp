#include "runtime/net/member_connector.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <poll.h>
#include <sys/socket.h>

#include "base/wire.h"

namespace hvd::runtime {
namespace {

// Connections that are lost before the peer has answered, because of a reset in the network or an
// acceptor that had no room, are made again so often.
constexpr int kConnections = 5;
constexpr std::chrono::milliseconds kFirstPause{20};  // then twice as long, each time

Status receive_exactly(int fd, std::string& into, std::size_t bytes, TimePoint deadline,
                       int interrupt) {
  std::string part(bytes, '\0');
  std::size_t done = 0;
  while (done < bytes) {
    HVD_RETURN_IF_ERROR(wait_for(fd, POLLIN, deadline, interrupt));
    const ssize_t got = ::recv(fd, part.data() + done, bytes - done, MSG_DONTWAIT);
    if (got == 0) return {Code::unavailable, "the other side closed the connection"};
    if (got > 0) {
      done += static_cast<std::size_t>(got);
    } else if (errno != EINTR && errno != EAGAIN) {
      return Status::from_errno("receive", errno);
    }
  }
  into += part;
  return {};
}

// Reads one frame of the handshake and not a byte beyond it: the coordinator may send as soon as it
// has accepted the proof.
Result<Frame> receive_handshake_frame(int fd, TimePoint deadline, int interrupt) {
  std::string bytes;
  HVD_RETURN_IF_ERROR(receive_exactly(fd, bytes, sizeof(std::uint32_t), deadline, interrupt));
  const std::size_t length = WireReader(bytes).u32();
  if (length > kMaxHandshakeFrame) {
    return Status(Code::data_loss, "the peer did not answer with an hvd handshake");
  }
  HVD_RETURN_IF_ERROR(receive_exactly(fd, bytes, length, deadline, interrupt));
  FrameDecoder decoder(kMaxHandshakeFrame);
  decoder.feed(bytes);
  auto frame = decoder.next();
  HVD_RETURN_IF_ERROR(frame.status());
  return std::move(**frame);
}

}  // namespace

Result<SessionKeys> authenticate(int fd, const Token& token, std::string_view purpose,
                                 const HandshakeIdentity& self, const HandshakeIdentity& peer,
                                 TimePoint deadline, int interrupt) {
  HandshakeConnector handshake(token, purpose, self, peer);
  auto challenge = receive_handshake_frame(fd, deadline, interrupt);
  HVD_RETURN_IF_ERROR(challenge.status());
  auto proof = handshake.prove(*challenge);
  HVD_RETURN_IF_ERROR(proof.status());
  HVD_RETURN_IF_ERROR(send_all(fd, *proof, deadline));
  auto verdict = receive_handshake_frame(fd, deadline, interrupt);
  HVD_RETURN_IF_ERROR(verdict.status());
  return handshake.check(*verdict);
}

Result<ProvedSocket> connect_and_authenticate(const SocketAddress& where, const Token& token,
                                              const HandshakeIdentity& self,
                                              const HandshakeIdentity& peer, TimePoint deadline,
                                              int interrupt, std::chrono::milliseconds again_for) {
  auto pause = kFirstPause;
  TimePoint no_more = kNever;
  for (int connection = 1;; ++connection) {
    auto fd = connect_tcp(where, deadline, interrupt);
    Status reached = fd.status();
    if (reached.ok()) {
      auto keys = authenticate(fd->get(), token, kTreePurpose, self, peer, deadline, interrupt);
      if (keys.ok()) return ProvedSocket{std::move(*fd), std::move(*keys)};
      reached = keys.status();
    }

    const TimePoint now = Clock::now();
    if (no_more == kNever) no_more = std::min(deadline, now + again_for);
    const bool again = reached.code() == Code::unavailable && connection < kConnections;
    if (!again || now + pause >= no_more) return reached;
    const Status paused = wait_for(-1, 0, now + pause, interrupt);
    if (paused.code() != Code::deadline_exceeded) return paused;
    pause *= 2;
  }
}

}  // namespace hvd::runtime
