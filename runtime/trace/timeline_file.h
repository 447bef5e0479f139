// The file of a timeline: a JSON array that is whole after every append. Each is one write over the
// closing bracket, which ends with the next one. For one thread.
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
