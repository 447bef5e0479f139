#include "base/frame.h"

#include <gtest/gtest.h>
#include <random>

#include "base/wire.h"

namespace hvd {
namespace {

TEST(Frame, ComesBackWhole) {
  FrameDecoder decoder;
  decoder.feed(encode_frame(7, "payload") + encode_frame(8, ""));
  auto first = decoder.next();
  ASSERT_TRUE(first.ok() && first->has_value());
  EXPECT_EQ((*first)->kind, 7);
  EXPECT_EQ((*first)->payload, "payload");
  auto second = decoder.next();
  ASSERT_TRUE(second.ok() && second->has_value());
  EXPECT_EQ((*second)->kind, 8);
  EXPECT_EQ((*second)->payload, "");
  EXPECT_FALSE(decoder.mid_frame());
  auto none = decoder.next();
  EXPECT_TRUE(none.ok() && !none->has_value());
}

TEST(Frame, BytesBehindAFrameCanBeTakenUndecoded) {
  FrameDecoder decoder;
  decoder.feed(encode_frame(7, "payload") + "no frame");
  ASSERT_TRUE(decoder.next()->has_value());
  EXPECT_EQ(decoder.take_rest(), "no frame");
  EXPECT_EQ(decoder.take_rest(), "");
  EXPECT_FALSE(decoder.mid_frame());
}

TEST(Frame, ComesBackFromSingleBytes) {
  const std::string bytes = encode_frame(300, std::string(1000, 'x'));
  FrameDecoder decoder;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    auto frame = decoder.next();
    ASSERT_TRUE(frame.ok() && !frame->has_value()) << i;
    EXPECT_EQ(decoder.mid_frame(), i > 0);
    decoder.feed(bytes.substr(i, 1));
  }
  auto frame = decoder.next();
  ASSERT_TRUE(frame.ok() && frame->has_value());
  EXPECT_EQ((*frame)->payload.size(), 1000U);
}

TEST(Frame, ComesBackInOrderHoweverTheStreamIsCut) {
  std::mt19937 random(3);
  std::string stream;
  std::vector<std::string> payloads;
  for (int i = 0; i < 500; ++i) {
    payloads.emplace_back(random() % 20'000, static_cast<char>(i));
    stream += encode_frame(static_cast<std::uint16_t>(i), payloads.back());
  }
  FrameDecoder decoder;
  std::size_t seen = 0;
  for (std::size_t at = 0; at < stream.size();) {
    const std::size_t piece = 1 + random() % 50'000;
    decoder.feed(std::string_view(stream).substr(at, piece));
    at += piece;
    for (;;) {
      auto frame = decoder.next();
      ASSERT_TRUE(frame.ok());
      if (!frame->has_value()) break;
      ASSERT_EQ((*frame)->kind, seen);
      ASSERT_EQ((*frame)->payload, payloads[seen]);
      ++seen;
    }
  }
  EXPECT_EQ(seen, payloads.size());
}

TEST(Frame, AnImpossibleLengthIsAnErrorBeforeItsBytesCome) {
  for (const std::uint32_t length : {0U, 1U, 1001U, 0xffffffffU}) {
    FrameDecoder decoder(1000);
    decoder.feed(WireWriter().u32(length).take());
    const auto frame = decoder.next();
    ASSERT_FALSE(frame.ok()) << length;
    EXPECT_EQ(frame.status().code(), Code::data_loss);
    EXPECT_NE(frame.status().message().find(std::to_string(length)), std::string::npos);
  }
}

TEST(Frame, TheLimitItselfIsAllowed) {
  FrameDecoder decoder(1000);
  decoder.feed(encode_frame(1, std::string(998, 'x')));
  const auto frame = decoder.next();
  ASSERT_TRUE(frame.ok() && frame->has_value());
}

}  // namespace
}  // namespace hvd
