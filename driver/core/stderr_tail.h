// The last lines that a worker wrote to its standard error, for the report of its failure. Takes
// bounded memory whatever is written. A value for one thread.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::driver {

class StderrTail {
 public:
  static constexpr std::size_t kMaxLines = 20;
  static constexpr std::size_t kMaxLine = 2'000;  // bytes; of a longer line the beginning is kept

  void feed(std::string_view bytes);
  // Oldest first, without line ends, the unfinished last one included. Of a line that was
  // overwritten by '\r', as progress bars do, what stood there last.
  std::vector<std::string> lines() const;

 private:
  void end_line();

  std::deque<std::string> lines_;
  std::string current_;
  bool return_pending_ = false;  // a '\r' whose meaning the next byte decides
};

}  // namespace hvd::driver
