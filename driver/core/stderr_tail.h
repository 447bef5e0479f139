// The last lines of a worker's standard error, for the report of its failure. Its memory is
// bounded. A value for one thread.
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
  // Oldest first, without line ends, including an unfinished last line. Of a line that was
  // overwritten after '\r', as by progress bars, the last version.
  std::vector<std::string> lines() const;

 private:
  void end_line();

  std::deque<std::string> lines_;
  std::string current_;
  bool return_pending_ = false;  // a '\r' whose meaning the next byte decides
};

}  // namespace hvd::driver
