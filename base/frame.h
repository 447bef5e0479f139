// Length-prefixed frames, the unit of every wire of ours that is not HTTP: a 32-bit little-endian
// length of what follows, a 16-bit kind, the payload. The meaning of the kinds stands in
// base/protocol/ and runtime/negotiation/messages.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hvd {

inline constexpr std::size_t kFrameHeaderSize = 6;
inline constexpr std::size_t kDefaultMaxFrame = std::size_t{64} << 20;

struct Frame {
  std::uint16_t kind = 0;
  std::string payload;
};

std::string encode_frame(std::uint16_t kind, std::string_view payload);

// Bytes in, frames out. A frame that claims more than `max_size` bytes is an error at once, before
// anything is allocated for it; after an error the stream is lost. The decoder overwrites
// its copy of a frame that it has given out, since there may be a credential in it. For one thread.
class FrameDecoder {
 public:
  explicit FrameDecoder(std::size_t max_size = kDefaultMaxFrame) : max_size_(max_size) {}

  void feed(std::string_view bytes);
  // The next whole frame, or nothing yet, or data_loss.
  Result<std::optional<Frame>> next();
  // True if bytes of an unfinished frame are held: an end of file now cuts a message short.
  bool mid_frame() const { return consumed_ < buffer_.size(); }
  // The bytes behind the last frame that next() gave, for a stream that goes on in another form.
  // None are held afterwards.
  std::string take_rest();

 private:
  void drop(std::size_t count);

  std::size_t max_size_;
  std::string buffer_;
  std::size_t consumed_ = 0;
};

}  // namespace hvd
