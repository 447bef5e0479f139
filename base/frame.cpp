#include "base/frame.h"

#include <algorithm>

#include "base/text.h"
#include "base/wire.h"

namespace hvd {

std::string encode_frame(std::uint16_t kind, std::string_view payload) {
  std::string bytes =
      WireWriter().u32(static_cast<std::uint32_t>(payload.size() + 2)).u16(kind).take();
  bytes += payload;
  return bytes;
}

void FrameDecoder::feed(std::string_view bytes) {
  if (buffer_.size() + bytes.size() <= buffer_.capacity()) {
    buffer_ += bytes;
    return;
  }
  // As the string would grow by itself, but that it leaves the old bytes behind.
  std::string larger;
  larger.reserve(std::max(2 * buffer_.capacity(), buffer_.size() + bytes.size()));
  larger.append(buffer_).append(bytes);
  buffer_.swap(larger);
  wipe(larger.data(), larger.size());
}

// Bytes that are not needed any more, at the beginning of those that are held.
void FrameDecoder::drop(std::size_t count) {
  wipe(buffer_.data() + consumed_, count);
  consumed_ += count;
  if (consumed_ == buffer_.size()) {
    buffer_.clear();
    consumed_ = 0;
  } else if (consumed_ > (std::size_t{1} << 20)) {
    std::string rest = buffer_.substr(consumed_);
    buffer_.swap(rest);
    wipe(rest.data(), rest.size());
    consumed_ = 0;
  }
}

Result<std::optional<Frame>> FrameDecoder::next() {
  const std::string_view rest = std::string_view(buffer_).substr(consumed_);
  if (rest.size() < 4) return std::optional<Frame>();
  const std::size_t length = WireReader(rest.substr(0, 4)).u32();
  if (length < 2 || length > max_size_) {
    return Status(Code::data_loss,
                  cat("a frame of ", length, " bytes, where 2 to ", max_size_, " are allowed"));
  }
  if (rest.size() < 4 + length) return std::optional<Frame>();
  Frame frame;
  frame.kind = WireReader(rest.substr(4, 2)).u16();
  frame.payload = rest.substr(kFrameHeaderSize, length - 2);
  drop(4 + length);
  return std::optional<Frame>(std::move(frame));
}

std::string FrameDecoder::take_rest() {
  std::string rest = buffer_.substr(consumed_);
  drop(rest.size());
  return rest;
}

}  // namespace hvd
