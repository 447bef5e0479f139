#include "driver/agents/outgoing_frames.h"

#include <gtest/gtest.h>

#include "base/text.h"

namespace hvd::driver {
namespace {

// The bytes that are written with `most` bytes in each write, all of which succeed completely.
std::string written(OutgoingFrames& frames, std::size_t most = 1'000) {
  std::string text;
  for (const auto piece : frames.next(most)) text += piece;
  EXPECT_LE(text.size(), most);
  frames.advance(text.size());
  return text;
}

TEST(OutgoingFrames, LeaveInOrderInPiecesOfAnySize) {
  for (std::size_t most = 1; most < 12; ++most) {
    OutgoingFrames frames;
    frames.push(share("abc"));
    frames.push([] { return std::string("defg"); });
    frames.push(share("h"));
    std::string all;
    while (!frames.empty()) all += written(frames, most);
    EXPECT_EQ(all, "abcdefgh") << most;
  }
}

TEST(OutgoingFrames, UnwrittenBytesAreOfferedAgain) {
  OutgoingFrames frames;
  frames.push(share("abc"));
  frames.push(share("def"));
  EXPECT_EQ(frames.next(5).size(), 2U);
  frames.advance(2);
  EXPECT_EQ(written(frames, 3), "cde");
  EXPECT_EQ(written(frames), "f");
}

TEST(OutgoingFrames, AnUrgentOneOvertakesAllThatHasNotBegun) {
  OutgoingFrames frames;
  frames.push(share("abc"));
  frames.push(share("def"));
  EXPECT_EQ(written(frames, 1), "a");
  frames.push_urgent(share("!"));
  EXPECT_TRUE(frames.urgent_waits());
  EXPECT_EQ(written(frames, 3), "bc!");
  EXPECT_FALSE(frames.urgent_waits());
  EXPECT_EQ(written(frames), "def");
}

TEST(OutgoingFrames, AFrameIsMadeWhenItsTurnComes) {
  OutgoingFrames frames;
  int made = 0;
  for (int i = 0; i < 100; ++i) {
    frames.push([&made] {
      ++made;
      return std::string(100, 'x');
    });
  }
  EXPECT_EQ(made, 0);
  EXPECT_EQ(written(frames, 250).size(), 250U);
  EXPECT_EQ(made, 3);
}

TEST(OutgoingFrames, OfWorldsThatWaitTheNewestOfEachKindIsKept) {
  OutgoingFrames frames;
  frames.push_world(true, share("E1 "), nullptr);
  EXPECT_EQ(written(frames, 1), "E");  // begun: it goes out whole
  for (int generation = 2; generation < 1'000; ++generation) {
    frames.push_world(generation % 2 == 0, share(cat("world ", generation, " ")),
                      share(cat("keys ", generation, " ")));
  }
  frames.push(share("end"));
  EXPECT_EQ(written(frames), "1 keys 998 world 998 keys 999 world 999 end");
  frames.push_world(true, share("E1000"), nullptr);
  EXPECT_EQ(written(frames), "E1000");
}

TEST(OutgoingFrames, NothingComesBetweenAWorldAndItsKeys) {
  OutgoingFrames frames;
  frames.push_world(true, share("world 1 "), share("keys 1 "));
  EXPECT_EQ(written(frames, 1), "k");
  frames.push_world(true, share("world 2 "), share("keys 2 "));
  frames.push_urgent(share("! "));
  EXPECT_EQ(written(frames), "eys 1 world 1 ! keys 2 world 2 ");
}

TEST(OutgoingFrames, ADocumentForManyIsHeldOnce) {
  const SharedBytes document = share(std::string(1'000'000, 'w'));
  std::vector<OutgoingFrames> agents(1'000);
  for (auto& frames : agents) {
    frames.push_world(true, document, nullptr);
    const auto pieces = frames.next(64'000);
    ASSERT_EQ(pieces.size(), 1U);
    EXPECT_EQ(pieces.front().data(), document->data());  // no copy, on the way to the socket either
  }
}

TEST(OutgoingFrames, AreGoneWhenCleared) {
  OutgoingFrames frames;
  frames.push_world(false, share("P1"), nullptr);
  frames.push_urgent(share("!"));
  EXPECT_EQ(written(frames, 2), "!P");
  frames.clear();
  EXPECT_TRUE(frames.empty());
  frames.push_world(false, share("P2"), nullptr);
  EXPECT_EQ(written(frames), "P2");
}

}  // namespace
}  // namespace hvd::driver
