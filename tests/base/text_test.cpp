#include "base/text.h"

#include <cstdint>
#include <gtest/gtest.h>

#include "tests/support/process.h"

namespace hvd {
namespace {

using Strings = std::vector<std::string>;

TEST(Text, TrimsBlanksAtBothEnds) {
  EXPECT_EQ(trim(" \t a b\r\n"), "a b");
  EXPECT_EQ(trim("   "), "");
  EXPECT_EQ(trim(""), "");
}

TEST(Text, SplitsIntoEveryField) {
  EXPECT_EQ(split("a,b,,c", ','), (Strings{"a", "b", "", "c"}));
  EXPECT_EQ(split(",", ','), (Strings{"", ""}));
  EXPECT_EQ(split("a", ','), Strings{"a"});
  EXPECT_EQ(split("", ','), Strings{});
}

TEST(Text, Joins) {
  EXPECT_EQ(join({"a", "b", "c"}, ", "), "a, b, c");
  EXPECT_EQ(join({"a"}, ", "), "a");
  EXPECT_EQ(join({}, ", "), "");
  EXPECT_EQ(join({"", ""}, "-"), "-");
}

TEST(Text, ParsesWholeNumbersOnly) {
  EXPECT_EQ(parse_number<int>("-12"), -12);
  EXPECT_EQ(parse_number<double>("2.5"), 2.5);
  EXPECT_EQ(parse_number<std::uint64_t>("18446744073709551615"), UINT64_MAX);
  for (const char* const wrong : {"", " 1", "1 ", "1x", "0x1", "+1", "99999999999"}) {
    EXPECT_FALSE(parse_number<int>(wrong)) << wrong;
  }
  EXPECT_FALSE(parse_number<unsigned>("-1"));
  EXPECT_FALSE(parse_number<std::uint8_t>("256"));
}

TEST(Text, SuggestsWhatWasMeant) {
  const Strings flags = {"verbose", "version", "hostfile", "np"};
  EXPECT_EQ(nearest("verbos", flags), "verbose");
  EXPECT_EQ(nearest("hostfle", flags), "hostfile");
  EXPECT_EQ(nearest("verison", flags), "version");
  EXPECT_FALSE(nearest("completely-different", flags));
  EXPECT_FALSE(nearest("x", {}));
}

TEST(Text, SuggestsNothingThatIsFarAway) {
  const Strings flags = {"--hosts",  "-np",     "-H",          "-p",
                         "--spares", "--grace", "--transport", "--tcp"};
  EXPECT_EQ(nearest("--np", flags), "-np");
  EXPECT_EQ(nearest("-hosts", flags), "--hosts");
  EXPECT_EQ(nearest("--hsots", flags), "--hosts");
  EXPECT_EQ(nearest("--tranpsort", flags), "--transport");
  EXPECT_EQ(nearest("--trnsprot", flags), "--transport");
  // Two slips in eleven letters, three in twelve.
  EXPECT_EQ(nearest("abcdefghi--", {"abcdefghijk"}), "abcdefghijk");
  EXPECT_FALSE(nearest("abcdefgh---", {"abcdefghijk"}));
  EXPECT_EQ(nearest("abcdefghi---", {"abcdefghijkl"}), "abcdefghijkl");
  for (const char* const word : {"-x", "-n", "-np4x", "--cp", "--share", "--time", "--", "-"}) {
    EXPECT_FALSE(nearest(word, flags)) << word << ": " << *nearest(word, flags);
  }
}

TEST(Text, ASlipIsOneLetterAndShortWordsHaveRoomForFewer) {
  struct Row {
    const char* word;
    const char* candidate;
    bool near;
  };
  const Row rows[] = {
      {"ab", "ax", false},               // two letters: no slip
      {"abc", "abx", true},              // three: one
      {"abcde", "abxdy", false},         // five: still one
      {"abcdef", "abxdey", true},        // six: two
      {"abcdef", "abcdefghijkl", true},  // as long as a beginning that counts as the word
      {"abcde", "abcdefghijkl", false},
      {"bacd", "abcd", true},   // swapped
      {"bacx", "abcd", false},  // swapped, and one exchanged
      {"xyabc", "abc", false},  // two too many in front
      {"axbyc", "abc", false},  // two too many between
      {"abc", "axbyc", false},  // two left out
      {"xabc", "abc", true},    // one of each
      {"abc", "abxc", true},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(nearest(row.word, {row.candidate}).has_value(), row.near)
        << row.word << " for " << row.candidate;
  }
  EXPECT_EQ(nearest("abc", {"abx", "aby"}), "abx") << "the first of those that are as near";
}

TEST(Text, QuotesWordsSoThatAShellGivesThemBack) {
  EXPECT_EQ(shell_quote("plain-word_1.2/x=y"), "plain-word_1.2/x=y");
  EXPECT_EQ(shell_quote(""), "''");
  for (const std::string word : {"two words", "it's", "$HOME `id` \"x\"", "a\nb", "*", "\\", "~",
                                 "a;b|c&d", "!", "#x", "\xff\x01"}) {
    const auto result = test::run({"sh", "-c", "printf %s " + shell_quote(word)});
    EXPECT_EQ(result.out, word);
  }
}

TEST(Text, GroupsThousands) {
  EXPECT_EQ(with_thousands(0), "0");
  EXPECT_EQ(with_thousands(999), "999");
  EXPECT_EQ(with_thousands(1000), "1,000");
  EXPECT_EQ(with_thousands(1234567), "1,234,567");
}

}  // namespace
}  // namespace hvd
