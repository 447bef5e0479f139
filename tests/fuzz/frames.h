// The frames of a link whose messages are declared with HVD_MESSAGE_FIELDS, as fuzz targets read
// them: a stream of frames (base/frame.h), each decoded as the message that its kind says.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/frame.h"
#include "tests/fuzz/input.h"

namespace hvd::fuzz {

// The payload of a frame that encode() has given.
inline std::string_view payload_of(std::string_view frame) {
  return frame.substr(kFrameHeaderSize);
}

// What a message says survives: decoded and encoded once more, it has the same bytes.
template <typename Message>
void decode_one(std::string_view payload) {
  const auto message = Message::decode(payload);
  if (!message.ok()) return must_explain(message.status());
  const auto written = message->encode();
  const auto again = Message::decode(payload_of(written));
  must(again.ok(), "what was decoded and encoded is decoded again");
  must(again->encode() == written, "a message that was encoded is decoded to the same message");
}

// True if `kind` is this message's.
template <typename Message>
bool decode_if(std::uint16_t kind, std::string_view payload) {
  if (kind != static_cast<std::uint16_t>(Message::kKind)) return false;
  decode_one<Message>(payload);
  return true;
}

template <typename... Messages>
void decode_as_one_of(const Frame& frame) {
  (void)(decode_if<Messages>(frame.kind, frame.payload) || ...);
}

// Calls `use` for each frame, until the stream is lost. The bytes come in two pieces.
template <typename Use>
void for_each_frame(std::string_view bytes, std::size_t most, Use use) {
  FrameDecoder decoder(most);
  for (const auto piece : {bytes.substr(0, bytes.size() / 2), bytes.substr(bytes.size() / 2)}) {
    decoder.feed(piece);
    for (;;) {
      const auto frame = decoder.next();
      if (!frame.ok()) return must_explain(frame.status());
      if (!frame->has_value()) break;
      use(**frame);
    }
  }
}

}  // namespace hvd::fuzz
