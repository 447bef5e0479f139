#include <gtest/gtest.h>

#include "base/text.h"

namespace hvd {
namespace {

TEST(Hex, GoesThereAndBack) {
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  EXPECT_EQ(to_hex(all).substr(0, 8), "00010203");
  EXPECT_EQ(*from_hex(to_hex(all)), all);
  EXPECT_EQ(*from_hex("00fFAb"), std::string("\0\xff\xab", 3));
  EXPECT_EQ(*from_hex(""), "");
  for (const char* const wrong : {"0", "0g", "g0", "00 ", "0x"}) EXPECT_FALSE(from_hex(wrong).ok());
}

TEST(Hex, IsAppended) {
  std::string text = "id ";
  append_hex(text, "\x0f\xf0");
  EXPECT_EQ(text, "id 0ff0");
}

}  // namespace
}  // namespace hvd
