// One framed TCP connection of the control plane, non-blocking: bytes that the socket does not take
// are kept, and sent when there is room. After protect() all bytes travel in encrypted records
// (base/security/sealing.h), each behind its length. For one thread at a time, the one that drives
// the control loop.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "base/descriptors.h"
#include "base/frame.h"
#include "base/security/sealing.h"
#include "base/status.h"

namespace hvd::runtime {

// A connection whose two ends have proved that they belong to the job, and the keys that only they
// have. Nothing that follows the handshake has been read from it.
struct ProvedSocket {
  UniqueFd fd;
  SessionKeys keys;
};

class Connection {
 public:
  Connection(UniqueFd fd, std::size_t max_frame) : fd_(std::move(fd)), decoder_(max_frame) {}

  int fd() const { return fd_.get(); }
  // Whole frames. An error means that the other side is gone.
  Status send(std::string_view frames);
  Status flush();
  bool has_unsent() const { return sent_ < unsent_.size(); }
  std::size_t unsent() const { return unsent_.size() - sent_; }
  // Reads everything that has arrived, or, for a peer that is not authenticated, not much more than
  // `most`. unavailable: the peer closed the connection or is gone; frames that came before that
  // can still be read with next(). data_loss: a record is not what the peer has sent.
  Status receive(std::size_t most = std::numeric_limits<std::size_t>::max());
  // The next whole frame; data_loss if the bytes are not a frame.
  Result<std::optional<Frame>> next() { return decoder_.next(); }
  // Accepts frames of up to this size from now on, once the peer has proved its identity. The peer
  // sends nothing between its proof and our answer, so no bytes are lost.
  void trust(std::size_t max_frame) { decoder_ = FrameDecoder(max_frame); }
  // Encrypts from now on, in both directions. Nothing that the peer protects has been read yet.
  void protect(const SessionKeys& keys);
  // Gives up the socket, for use without frames.
  UniqueFd release() { return std::move(fd_); }

 private:
  static constexpr std::size_t kRecordBytes = std::size_t{64} << 10;  // at most, before its tag

  void seal(std::string_view bytes);
  Status take_received(std::string_view bytes);

  UniqueFd fd_;
  FrameDecoder decoder_;
  std::optional<RecordCipher> sealing_;
  std::optional<RecordCipher> opening_;
  std::string sealed_;  // received, and not yet a whole record
  std::string unsent_;
  std::size_t sent_ = 0;
};

}  // namespace hvd::runtime
