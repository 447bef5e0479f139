#include <gtest/gtest.h>

#include "base/text.h"

namespace hvd {
namespace {

TEST(TextTable, ColumnsAreAsWideAsTheirWidestCellAndNoLineEndsWithSpaces) {
  EXPECT_EQ(text_table({{"a", "long heading", "c"}, {"wide cell", "b", ""}, {"", "", ""}}),
            "a          long heading  c\n"
            "wide cell  b\n"
            "\n");
  EXPECT_EQ(text_table({}), "");
}

}  // namespace
}  // namespace hvd
