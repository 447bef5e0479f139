// Text in columns. Pure, safe from any thread.
#pragma once

#include <string>
#include <vector>

namespace hvd {

// A line for each row, all of the same number of cells: a column is as wide as its widest cell, and
// two spaces stand between columns. No line ends with spaces. The caller makes cells printable.
std::string text_table(const std::vector<std::vector<std::string>>& rows);

}  // namespace hvd
