#include "base/printable.h"

#include <gtest/gtest.h>

#include "base/socket.h"
#include "tests/support/process.h"

namespace hvd {
namespace {

using namespace std::string_literals;

TEST(Printable, WhatATerminalWouldObeyIsShownInstead) {
  EXPECT_EQ(printable("plain text, \"quoted\" and \\ too"), "plain text, \"quoted\" and \\ too");
  EXPECT_EQ(printable("a\x1b[2Jb"), "a\\x1b[2Jb");
  EXPECT_EQ(printable("a\0b"s), "a\\x00b");
  EXPECT_EQ(printable("a\nb\rc\td\x7f"), "a\\nb\\rc\\td\\x7f");
  EXPECT_EQ(printable_lines("a\n\tb\r\x1b"), "a\n\tb\\r\\x1b");
}

TEST(Printable, Utf8StaysAndWhatOnlyLooksLikeItDoesNot) {
  EXPECT_EQ(printable("h\xc3\xb6st \xe2\x82\xac \xf0\x9f\x98\x80"),
            "h\xc3\xb6st \xe2\x82\xac \xf0\x9f\x98\x80");
  EXPECT_EQ(printable("\xc3"), "\\xc3");
  EXPECT_EQ(printable("\xff\xfe"), "\\xff\\xfe");
  EXPECT_EQ(printable("\xc0\x9b[2J"), "\\xc0\\x9b[2J") << "an escape in two bytes where one is due";
  EXPECT_EQ(printable("\xc2\x9b[2J"), "\\xc2\\x9b[2J") << "Unicode's own control characters";
  EXPECT_EQ(printable("a\xe2\x80\xae"
                      "b"),
            "a\\xe2\\x80\\xaeb")
      << "right to left from here";
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "half of a pair";
}

TEST(Printable, QuotedIsCut) {
  EXPECT_EQ(quoted("a\nb"), "\"a\\nb\"");
  EXPECT_EQ(quoted("abcdef", 3), "\"abc...\"");
}

TEST(Printable, AWordForAShellIsQuotedAndReadBackAsItWas) {
  EXPECT_EQ(printable_word("plain"), "plain");
  EXPECT_EQ(printable_word("two words"), "'two words'");
  EXPECT_EQ(printable_word("a\nb"), "$'a\\nb'");
  const std::string wild = "it's \x1b[2J\\n \xff\n\t\"$HOME\"";
  const std::string word = printable_word(wild);
  EXPECT_EQ(printable(word), word);
  const auto read = test::run({"bash", "-c", "printf %s " + word});
  EXPECT_EQ(read.out, wild);
}

TEST(Printable, AnAddressEndsNotAtItsFirstNul) {
  EXPECT_TRUE(is_ip_address("127.0.0.1"));
  EXPECT_FALSE(is_ip_address("127.0.0.1\0.example"s));
  EXPECT_FALSE(is_ip_address("::1\0"s));
  EXPECT_EQ(raw_address({"\x1b[2J", 0}).status().message(), "\"\\x1b[2J\" is not an IP address");
}

}  // namespace
}  // namespace hvd
