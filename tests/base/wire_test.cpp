#include "base/wire.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <random>

namespace hvd {
namespace {

TEST(Wire, GivesBackWhatWasWritten) {
  const std::string bytes = WireWriter()
                                .u8(0xfe)
                                .u16(0xfedc)
                                .u32(0xfedcba98)
                                .u64(0xfedcba9876543210)
                                .i32(-5)
                                .i64(std::numeric_limits<std::int64_t>::min())
                                .f64(-0.1)
                                .f64(INFINITY)
                                .boolean(true)
                                .boolean(false)
                                .str(std::string("a\0b", 3))
                                .str("")
                                .strings({"x", "", "yz"})
                                .take();
  WireReader reader(bytes);
  EXPECT_EQ(reader.u8(), 0xfe);
  EXPECT_EQ(reader.u16(), 0xfedc);
  EXPECT_EQ(reader.u32(), 0xfedcba98U);
  EXPECT_EQ(reader.u64(), 0xfedcba9876543210U);
  EXPECT_EQ(reader.i32(), -5);
  EXPECT_EQ(reader.i64(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(reader.f64(), -0.1);
  EXPECT_EQ(reader.f64(), INFINITY);
  EXPECT_TRUE(reader.boolean());
  EXPECT_FALSE(reader.boolean());
  EXPECT_EQ(reader.str(), std::string("a\0b", 3));
  EXPECT_EQ(reader.str(), "");
  EXPECT_EQ(reader.strings(), (std::vector<std::string>{"x", "", "yz"}));
  EXPECT_TRUE(reader.finish("all").ok());
}

TEST(Wire, IsLittleEndian) {
  EXPECT_EQ(WireWriter().u32(0x04030201).take(), "\x01\x02\x03\x04");
  EXPECT_EQ(WireWriter().str("hi").take(), std::string("\x02\0\0\0hi", 6));
}

TEST(Wire, FailsAtTheFirstFieldThatIsMissing) {
  WireReader reader(std::string_view("\x01\x02\x03", 3));
  EXPECT_EQ(reader.u32(), 0U);
  EXPECT_TRUE(reader.failed());
  EXPECT_EQ(reader.u8(), 0);  // nothing more is given, though bytes were there
  EXPECT_EQ(reader.finish("message").message(), "message: the message ends too early");
}

TEST(Wire, NamesBytesTooMany) {
  WireReader reader("abc");
  reader.u8();
  const Status status = reader.finish("message");
  EXPECT_EQ(status.code(), Code::data_loss);
  EXPECT_EQ(status.message(), "message: 2 bytes too many");
}

TEST(Wire, ALieAboutALengthAllocatesNothing) {
  const std::string text = WireWriter().u32(0xffffffff).take() + "x";
  WireReader one(text);
  EXPECT_EQ(one.str(), "");
  EXPECT_TRUE(one.failed());
  WireReader many(text);
  EXPECT_LE(many.strings().size(), 1U);
  EXPECT_TRUE(many.failed());
}

TEST(Wire, RandomBytesNeverReadPastTheEnd) {
  std::mt19937 random(7);
  for (int round = 0; round < 20'000; ++round) {
    std::string bytes(random() % 40, '\0');
    for (auto& c : bytes) c = static_cast<char>(random() % 3 == 0 ? random() : 0);
    WireReader reader(bytes);
    std::size_t taken = 0;
    for (int i = 0; i < 6; ++i) {
      switch (random() % 4) {
        case 0:
          reader.u64();
          break;
        case 1:
          taken += reader.view().size();
          break;
        case 2:
          for (const auto& text : reader.strings()) taken += text.size();
          break;
        default:
          reader.u8();
      }
    }
    EXPECT_LE(taken, bytes.size());
  }
}

}  // namespace
}  // namespace hvd
