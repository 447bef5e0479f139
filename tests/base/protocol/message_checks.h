// Checks that every message of every link must pass: cut anywhere, lengthened, or of random bytes.
#pragma once

#include <gtest/gtest.h>
#include <random>
#include <string>
#include <string_view>

#include "base/frame.h"

namespace hvd::test {

template <typename Message>
std::string payload_of(const Message& message) {
  const std::string bytes = message.encode();
  FrameDecoder decoder;
  decoder.feed(bytes);
  auto frame = decoder.next();
  EXPECT_TRUE(frame.ok() && frame->has_value());
  EXPECT_EQ((*frame)->kind, static_cast<std::uint16_t>(Message::kKind));
  EXPECT_FALSE(decoder.mid_frame());
  return (*frame)->payload;
}

// Encodes, decodes, encodes again: the same bytes; then every way to spoil them.
template <typename Message>
void expect_sound(const Message& message) {
  const std::string payload = payload_of(message);
  const auto again = Message::decode(payload);
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(payload_of(*again), payload);

  for (std::size_t length = 0; length < payload.size(); ++length) {
    const auto cut = Message::decode(std::string_view(payload).substr(0, length));
    ASSERT_FALSE(cut.ok()) << "cut to " << length << " of " << payload.size();
  }
  const auto longer = Message::decode(payload + '\0');
  ASSERT_FALSE(longer.ok());
  EXPECT_EQ(longer.status().code(), Code::data_loss);

  std::mt19937 random(17);
  for (int round = 0; round < 2000; ++round) {
    std::string spoilt = payload;
    spoilt.resize(random() % (payload.size() + 20));
    for (auto& c : spoilt) {
      if (random() % 4 == 0) c = static_cast<char>(random());
    }
    const auto decoded = Message::decode(spoilt);
    // An accepted message must encode to the bytes that were sent.
    if (decoded.ok()) {
      EXPECT_EQ(payload_of(*decoded).size(), spoilt.size());
    }
  }
}

}  // namespace hvd::test
