// The file of a timeline: a JSON array that is whole after every write. Each goes over the closing
// bracket and ends with the next one, and they are short, so that the end of the process hardly
// ever finds one of them half done. For one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/unique_fd.h"

namespace hvd::runtime::trace {

class TimelineFile {
 public:
  // Replaces what was there. `first`: the first elements, at least one, separated by commas.
  static Result<TimelineFile> create(const std::string& path, std::string_view first);
  // Further ones. After an error the file holds what it held before.
  Status append(std::string_view elements);
  const std::string& path() const { return path_; }

 private:
  TimelineFile(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  Status write(std::string_view text, std::int64_t at);

  std::string path_;
  UniqueFd fd_;
  std::int64_t end_ = 0;  // where the closing begins
};

}  // namespace hvd::runtime::trace
