#include "base/wire.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <utility>
#include <vector>

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

TEST(Wire, SmallNumbersTakeFewBytes) {
  const std::vector<std::pair<std::uint64_t, std::size_t>> sizes = {{0, 1},
                                                                    {0x7f, 1},
                                                                    {0x80, 2},
                                                                    {0x3fff, 2},
                                                                    {0x4000, 3},
                                                                    {~std::uint64_t{0} >> 1, 9},
                                                                    {~std::uint64_t{0}, 10}};
  for (const auto& [number, size] : sizes) {
    const std::string bytes = WireWriter().varint(number).take();
    EXPECT_EQ(bytes.size(), size) << number;
    WireReader reader(bytes);
    EXPECT_EQ(reader.varint(), number);
    EXPECT_TRUE(reader.finish("number").ok()) << number;

    WireReader cut(std::string_view(bytes).substr(0, size - 1));
    EXPECT_EQ(cut.varint(), 0U);
    EXPECT_TRUE(cut.failed()) << number;
  }
}

TEST(Wire, ANumberOfMoreThan64BitsIsAFailure) {
  for (const std::string_view bytes : {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02",
                                       "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"}) {
    WireReader reader(bytes);
    reader.varint();
    EXPECT_TRUE(reader.failed());
  }
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
