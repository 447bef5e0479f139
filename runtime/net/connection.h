// One framed TCP connection of the control plane, non-blocking: bytes that do not fit are kept and
// sent when there is room. For one thread at a time, who does the work of the control loop.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "base/frame.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace hvd::runtime {

class Connection {
 public:
  Connection(UniqueFd fd, std::size_t max_frame) : fd_(std::move(fd)), decoder_(max_frame) {}

  int fd() const { return fd_.get(); }
  // Whole frames. An error means that the other side is gone.
  Status send(std::string_view frames);
  Status flush();
  bool has_unsent() const { return sent_ < unsent_.size(); }
  std::size_t unsent() const { return unsent_.size() - sent_; }
  // Takes in all that has arrived, or, of a stranger, not much more than `most`. unavailable: the
  // other side closed or is gone; frames that came before that are still there.
  Status receive(std::size_t most = std::numeric_limits<std::size_t>::max());
  // The next whole frame; data_loss if there can be none.
  Result<std::optional<Frame>> next() { return decoder_.next(); }
  // From now on frames of up to this size: the other side has proved who it is. Between the proof
  // and our answer to it nothing may arrive, so nothing is lost.
  void trust(std::size_t max_frame) { decoder_ = FrameDecoder(max_frame); }
  // The same for whoever goes on without frames.
  UniqueFd release() { return std::move(fd_); }

 private:
  UniqueFd fd_;
  FrameDecoder decoder_;
  std::string unsent_;
  std::size_t sent_ = 0;
};

}  // namespace hvd::runtime
