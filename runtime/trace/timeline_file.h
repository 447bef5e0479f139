// The file of a timeline: a JSON array that is complete after every write. Each write overwrites
// the closing bracket and ends with a new one, and writes are short, so that the end of the process
// hardly ever finds one half done. For one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/descriptors.h"
#include "base/status.h"

namespace hvd::runtime::trace {

class TimelineFile {
 public:
  // Replaces an existing file. `first`: the first elements, at least one, separated by commas.
  static Result<TimelineFile> create(const std::string& path, std::string_view first);
  // Appends further elements. After an error the file holds what it held before.
  Status append(std::string_view elements);
  const std::string& path() const { return path_; }

 private:
  TimelineFile(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  Status write(std::string_view text, std::int64_t at);

  std::string path_;
  UniqueFd fd_;
  std::int64_t end_ = 0;  // offset of the closing bracket
};

}  // namespace hvd::runtime::trace
