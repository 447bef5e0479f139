#include "runtime/transport/outbound_handshake.h"

#include <array>
#include <cerrno>
#include <sys/socket.h>

#include "base/text.h"
#include "base/wire.h"

namespace hvd::runtime {

Status OutboundHandshake::start() {
  auto fd = begin_connect_tcp(where_);
  HVD_RETURN_IF_ERROR(fd.status());
  fd_ = std::move(*fd);
  return {};
}

Result<OutboundHandshake::Progress> OutboundHandshake::handle() {
  if (step_ != Step::connecting) return read_frame();
  int error = 0;
  socklen_t size = sizeof(error);
  ::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error == ETIMEDOUT || error == ECONNRESET || error == EAGAIN) return Progress::again;
  if (error != 0) {
    return Status::from_errno(cat("connect to ", peer_, " at ", where_.to_string()), error);
  }
  step_ = Step::challenge;
  return Progress::under_way;
}

// Not a byte of what follows the frame: the other end may speak as soon as it has welcomed us.
Result<OutboundHandshake::Progress> OutboundHandshake::read_frame() {
  for (;;) {
    std::size_t whole = sizeof(std::uint32_t);
    if (bytes_.size() >= whole) whole += WireReader(bytes_).u32();
    if (whole > kMaxHandshakeFrame) {
      return Status(Code::unauthenticated, cat("what answers at ", where_.to_string(), " is not ",
                                               peer_, ": it does not speak hvd's handshake"));
    }
    if (bytes_.size() == whole && whole > sizeof(std::uint32_t)) break;
    std::array<char, kMaxHandshakeFrame> part;  // NOLINT(cppcoreguidelines-pro-type-member-init)
    const ssize_t got = ::recv(fd_.get(), part.data(), whole - bytes_.size(), MSG_DONTWAIT);
    if (got > 0) {
      bytes_.append(part.data(), static_cast<std::size_t>(got));
    } else if (got < 0 && errno == EAGAIN) {
      return Progress::under_way;
    } else if (got == 0 || errno != EINTR) {
      return Progress::again;
    }
  }
  FrameDecoder decoder(kMaxHandshakeFrame);
  decoder.feed(bytes_);
  bytes_.clear();
  auto frame = decoder.next();
  HVD_RETURN_IF_ERROR(frame.status());
  if (step_ == Step::verdict) {
    auto keys = handshake_.check(**frame);
    HVD_RETURN_IF_ERROR(keys.status());
    keys_ = std::move(*keys);
    return Progress::there;
  }
  auto proof = handshake_.prove(**frame);
  HVD_RETURN_IF_ERROR(proof.status());
  // It is short, and nothing was sent before it.
  const ssize_t sent = ::send(fd_.get(), proof->data(), proof->size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent != static_cast<ssize_t>(proof->size())) return Progress::again;
  step_ = Step::verdict;
  return Progress::under_way;
}

}  // namespace hvd::runtime
