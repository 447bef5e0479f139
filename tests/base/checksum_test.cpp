#include "base/checksum.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <span>
#include <string>
#include <string_view>

namespace hvd {
namespace {

TEST(Checksum, IsXxh64) {
  const auto of = [](std::string_view text) {
    return checksum_of(std::as_bytes(std::span(text.data(), text.size())));
  };
  EXPECT_EQ(of(""), 0xEF46DB3751D8E999U);
  EXPECT_EQ(of("a"), 0xD24EC4F1A98C6E5BU);
  EXPECT_EQ(of("abc"), 0x44BC2CF5AD770999U);
  EXPECT_EQ(of("Nobody inspects the spammish repetition"), 0xFBCEA83C8A378BF1U);
}

TEST(Checksum, IsTheSameHoweverTheBytesAreCut) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += static_cast<char>(i * 31 % 251);
  const auto all = std::as_bytes(std::span(text.data(), text.size()));
  for (const std::size_t step : {1U, 7U, 31U, 32U, 33U, 64U, 999U}) {
    Checksum checksum;
    for (std::size_t at = 0; at < all.size(); at += step) {
      EXPECT_EQ(checksum.value(), checksum_of(all.first(at)));
      checksum.add({});
      checksum.add(all.subspan(at, std::min(step, all.size() - at)));
    }
    EXPECT_EQ(checksum.value(), checksum_of(all)) << step;
  }
}

}  // namespace
}  // namespace hvd
