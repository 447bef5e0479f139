// Puts a worker's name before each line of one of its streams: bytes in, bytes out. Lines end at \n
// and at \r, so that progress bars keep moving; a line without an end is held back until it has
// one, so that lines of several workers never mix. Pure, but for the time of day; one for each
// stream, used by one thread.
#pragma once

#include <string>
#include <string_view>

namespace hvd::cli {

struct PrefixStyle {
  bool tagged = true;      // false: bytes pass as they come
  bool timestamp = false;  // before each line that is tagged
  bool colour = false;     // of the tag
};

// "[3]<stdout>:", in the rank's colour if so styled.
std::string rank_tag(int rank, std::string_view stream, const PrefixStyle& style);
// "[b#1]<stdout>:", of a worker that has no rank yet.
std::string joiner_tag(std::string_view worker, std::string_view stream, const PrefixStyle& style);

// hvdrun's own lines, each with its line feed: with the time where the workers' lines have it, and
// red, which no tag is, if they report an error and are so styled.
std::string own_lines(std::string_view lines, const PrefixStyle& style, bool is_error);

class LinePrefixer {
 public:
  // A longer line is broken with a \n, so that a worker that never ends a line takes no more memory
  // than this.
  static constexpr std::size_t kLongestLine = std::size_t{1} << 20;

  LinePrefixer(std::string tag, PrefixStyle style) : tag_(std::move(tag)), style_(style) {}

  // For the lines that end from now on.
  void set_tag(std::string tag) { tag_ = std::move(tag); }
  // The text that can be shown now.
  std::string push(std::string_view bytes);
  // The unfinished last line, with the \n that it lacks.
  std::string finish();

 private:
  void end_line(std::string& out, std::string_view rest, std::string_view end);

  std::string tag_;
  PrefixStyle style_;
  std::string unfinished_;
  bool after_return_ = false;  // the last byte was a \r: a \n that follows ends the same line
};

}  // namespace hvd::cli
