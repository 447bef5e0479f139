#include "cmd/hvdrun/top_command.h"

#include <gtest/gtest.h>

namespace hvd::cli {
namespace {

TEST(TopFrame, FillsTheScreenFromTheTopAndClearsTheRest) {
  EXPECT_EQ(top_frame("a\nb\n", 5, 10), "\033[Ha\033[K\r\nb\033[K\033[J");
  EXPECT_EQ(top_frame("", 5, 10), "\033[H\033[J");
}

TEST(TopFrame, CutsLinesByCharacters) {
  EXPECT_EQ(top_frame("abcdef", 5, 3), "\033[Habc\033[K\033[J");
  EXPECT_EQ(top_frame("h\u00f6st\u00e9n", 5, 3), "\033[Hh\u00f6s\033[K\033[J");
}

TEST(TopFrame, SaysHowManyLinesDoNotFit) {
  const std::string frame = top_frame("a\nb\nc\nd\n", 3, 100);
  EXPECT_EQ(frame, "\033[Ha\033[K\r\nb\033[K\r\n(2 more lines; q or Ctrl-C: quit)\033[K\033[J");
  EXPECT_EQ(top_frame("a\nb\n", 1, 100), "\033[H(2 more lines; q or Ctrl-C: quit)\033[K\033[J");
  EXPECT_EQ(top_frame("a\nb\n", 2, 100), "\033[Ha\033[K\r\nb\033[K\033[J");
}

}  // namespace
}  // namespace hvd::cli
