#include "cmd/hvdrun/line_prefixer.h"

#include <gtest/gtest.h>
#include <regex>

namespace hvd::cli {
namespace {

std::string prefixed(const std::vector<std::string>& pieces) {
  LinePrefixer prefixer("[0]<stdout>:", {});
  std::string out;
  for (const auto& piece : pieces) out += prefixer.push(piece);
  return out + prefixer.finish();
}

TEST(LinePrefixer, EachLineGetsThePrefixAndTheLastOneItsNewline) {
  EXPECT_EQ(prefixed({"a\nb\n"}), "[0]<stdout>:a\n[0]<stdout>:b\n");
  EXPECT_EQ(prefixed({"a\n\nb"}), "[0]<stdout>:a\n[0]<stdout>:\n[0]<stdout>:b\n");
  EXPECT_EQ(prefixed({""}), "");
}

TEST(LinePrefixer, AProgressBarKeepsItsReturns) {
  EXPECT_EQ(prefixed({"10%\r20%\r30%\n"}), "[0]<stdout>:10%\r[0]<stdout>:20%\r[0]<stdout>:30%\n");
}

TEST(LinePrefixer, AReturnWithANewlineIsOneLineEnd) {
  EXPECT_EQ(prefixed({"dos\r\nnext\n"}), "[0]<stdout>:dos\r\n[0]<stdout>:next\n");
}

TEST(LinePrefixer, TheResultDoesNotDependOnWhereTheBytesAreSplit) {
  using namespace std::string_literals;
  const std::string input = "one\ntwo\r\n\n10%\r20%\rdone\n\xff\xfe\x80 bad\n\0nul\n\r\rlast"s;
  const std::string whole = prefixed({input});
  for (std::size_t a = 0; a <= input.size(); ++a) {
    for (std::size_t b = a; b <= input.size(); ++b) {
      EXPECT_EQ(prefixed({input.substr(0, a), input.substr(a, b - a), input.substr(b)}), whole)
          << "split at " << a << " and " << b;
    }
  }
  std::vector<std::string> bytes;
  for (const char c : input) bytes.emplace_back(1, c);
  EXPECT_EQ(prefixed(bytes), whole);
}

TEST(LinePrefixer, BytesThatAreNoTextPassUnchanged) {
  std::string all;
  for (int c = 0; c < 256; ++c) {
    if (c != '\n' && c != '\r') all += static_cast<char>(c);
  }
  EXPECT_EQ(prefixed({all + "\n"}), "[0]<stdout>:" + all + "\n");
}

TEST(LinePrefixer, AnUnfinishedLineIsHeldBackUntilItEnds) {
  LinePrefixer prefixer("[1]<stderr>:", {});
  EXPECT_EQ(prefixer.push("half"), "");
  EXPECT_EQ(prefixer.push(" and half\nrest"), "[1]<stderr>:half and half\n");
  EXPECT_EQ(prefixer.finish(), "[1]<stderr>:rest\n");
  EXPECT_EQ(prefixer.finish(), "");
}

TEST(LinePrefixer, ALineWithoutEndIsBrokenInsteadOfKept) {
  LinePrefixer prefixer("p:", {});
  const std::string piece(100'000, 'x');
  std::string out;
  for (int i = 0; i < 25; ++i) out += prefixer.push(piece);
  out += prefixer.finish();
  const std::string line(LinePrefixer::kLongestLine, 'x');
  EXPECT_EQ(out, "p:" + line + "\np:" + line +
                     "\np:" + std::string(2'500'000 - 2 * LinePrefixer::kLongestLine, 'x') + "\n");
}

TEST(LinePrefixer, UntaggedBytesPassAtOnceAndUnchanged) {
  LinePrefixer prefixer("[0]<stdout>:", {.tagged = false, .timestamp = true});
  EXPECT_EQ(prefixer.push("a\r\nb"), "a\r\nb");
  EXPECT_EQ(prefixer.finish(), "");
}

TEST(LinePrefixer, TheTimestampStandsDirectlyBeforeThePrefix) {
  LinePrefixer prefixer("[0]<stdout>:", {.timestamp = true});
  const std::string out = prefixer.push("text\n");
  EXPECT_TRUE(std::regex_match(
      out, std::regex(
               R"([A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9]\d \d\d:\d\d:\d\d \d{4}\[0\]<stdout>:text\n)")))
      << out;
}

TEST(LinePrefixer, OnlyTheTagIsColouredAndRanksDiffer) {
  EXPECT_EQ(rank_tag(3, "stdout", {}), "[3]<stdout>:");
  const std::string zero = rank_tag(0, "stdout", {.colour = true});
  EXPECT_TRUE(zero.starts_with("\x1b["));
  EXPECT_TRUE(zero.ends_with("m[0]<stdout>:\x1b[0m"));
  EXPECT_NE(zero.substr(0, 5), rank_tag(1, "stdout", {.colour = true}).substr(0, 5));
}

TEST(OwnLines, CarryATimeWhereTheWorkersLinesDo) {
  EXPECT_EQ(own_lines("hvdrun: one\nhvdrun: two\n", {}, true), "hvdrun: one\nhvdrun: two\n");
  const std::string time = R"([A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9]\d \d\d:\d\d:\d\d \d{4} )";
  const std::string timed = own_lines("hvdrun: one\n    two\n", {.timestamp = true}, false);
  EXPECT_TRUE(std::regex_match(timed, std::regex(time + "hvdrun: one\n" + time + "    two\n")))
      << timed;
  EXPECT_EQ(own_lines("one\n", {.tagged = false, .timestamp = true}, false), "one\n");
  EXPECT_EQ(own_lines("", {.timestamp = true, .colour = true}, true), "");
}

TEST(OwnLines, AreRedIfTheyReportAnErrorAndNoTagIs) {
  EXPECT_EQ(own_lines("one\ntwo\n", {.colour = true}, true),
            "\x1b[31mone\x1b[0m\n\x1b[31mtwo\x1b[0m\n");
  EXPECT_EQ(own_lines("one\n", {.colour = true}, false), "one\n");
  for (int rank = 0; rank < 20; ++rank) {
    const std::string tag = rank_tag(rank, "stdout", {.colour = true});
    EXPECT_FALSE(tag.starts_with("\x1b[31m") || tag.starts_with("\x1b[91m")) << tag;
  }
}

}  // namespace
}  // namespace hvd::cli
