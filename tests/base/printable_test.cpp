#include "base/printable.h"

#include <filesystem>  // which brings std::quoted()
#include <gtest/gtest.h>

#include "base/socket.h"
#include "base/text.h"
#include "tests/support/process.h"

namespace hvd {
namespace {

using namespace std::string_literals;

TEST(Printable, ControlCharactersAreEscaped) {
  EXPECT_EQ(printable("plain text, \"quoted\" and \\ too"), "plain text, \"quoted\" and \\ too");
  EXPECT_EQ(printable("a\x1b[2Jb"), "a\\x1b[2Jb");
  EXPECT_EQ(printable("a\0b"s), "a\\x00b");
  EXPECT_EQ(printable("a\nb\rc\td\x7f"), "a\\nb\\rc\\td\\x7f");
  EXPECT_EQ(printable_lines("a\n\tb\r\x1b"), "a\n\tb\\r\\x1b");
}

TEST(Printable, ValidUtf8StaysAndInvalidUtf8DoesNot) {
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

// The characters on both sides of each limit.
TEST(Printable, PrintableRangesBeginAndEndAtTheirLimits) {
  for (const char* const plain :
       {" ", "~", "\xc2\xa0", "\xd8\x9b", "\xd8\x9d", "\xe2\x80\x8d", "\xe2\x80\x90", "\xdf\xbf",
        "\xe0\xa0\x80", "\xe2\x80\xa7", "\xe2\x80\xaf", "\xe2\x81\xa5", "\xe2\x81\xaa",
        "\xed\x9f\xbf", "\xee\x80\x80", "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_EQ(printable(plain), plain);
  }
  const std::pair<const char*, const char*> escaped[] = {
      {"\x1f", "\\x1f"},
      {"\x7f", "\\x7f"},
      {"\xc2\x80", "\\xc2\\x80"},
      {"\xc2\x9f", "\\xc2\\x9f"},
      {"\xd8\x9c", "\\xd8\\x9c"},
      {"\xe2\x80\x8e", "\\xe2\\x80\\x8e"},
      {"\xe2\x80\x8f", "\\xe2\\x80\\x8f"},
      {"\xe2\x80\xa8", "\\xe2\\x80\\xa8"},
      {"\xe2\x80\xa9", "\\xe2\\x80\\xa9"},
      {"\xe2\x80\xaa", "\\xe2\\x80\\xaa"},
      {"\xe2\x81\xa6", "\\xe2\\x81\\xa6"},
      {"\xe2\x81\xa9", "\\xe2\\x81\\xa9"},
      {"\xc1\xbf", "\\xc1\\xbf"},                    // in more bytes than it needs
      {"\xe0\x9f\xbf", "\\xe0\\x9f\\xbf"},           //
      {"\xf0\x8f\xbf\xbf", "\\xf0\\x8f\\xbf\\xbf"},  //
      {"\xed\xbf\xbf", "\\xed\\xbf\\xbf"},           // half of a pair
      {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},  // above the last character
      {"\xe2\x82", "\\xe2\\x82"},                    // cut short
      {"\xc3(", "\\xc3("},                           // not continued
      {"\xe2\x82(", "\\xe2\\x82("},                  //
  };
  for (const auto& [text, shown] : escaped) EXPECT_EQ(printable(text), shown);
}

TEST(Printable, QuotedIsCut) {
  EXPECT_EQ(quoted("abc", 3), "\"abc\"");
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

TEST(Printable, QuotesAreNotThoseOfTheStandardLibrary) {
  std::string text = "\x1b";
  const std::string constant = text;
  EXPECT_EQ(cat(quoted(text), quoted(constant), quoted("\x1b"s)), "\"\\x1b\"\"\\x1b\"\"\\x1b\"");
}

TEST(Printable, AnAddressEndsNotAtItsFirstNul) {
  EXPECT_TRUE(is_ip_address("127.0.0.1"));
  EXPECT_FALSE(is_ip_address("127.0.0.1\0.example"s));
  EXPECT_FALSE(is_ip_address("::1\0"s));
  EXPECT_EQ(raw_address({"\x1b[2J", 0}).status().message(), "\"\\x1b[2J\" is not an IP address");
}

}  // namespace
}  // namespace hvd
