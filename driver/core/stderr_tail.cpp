#include "driver/core/stderr_tail.h"

namespace hvd::driver {

void StderrTail::feed(std::string_view bytes) {
  for (const char byte : bytes) {
    if (byte == '\n') {
      end_line();
    } else if (byte == '\r') {
      return_pending_ = true;
    } else {
      if (return_pending_) current_.clear();
      return_pending_ = false;
      if (current_.size() < kMaxLine) current_ += byte;
    }
  }
}

void StderrTail::end_line() {
  return_pending_ = false;
  lines_.push_back(std::move(current_));
  current_.clear();
  if (lines_.size() > kMaxLines) lines_.pop_front();
}

std::vector<std::string> StderrTail::lines() const {
  std::vector<std::string> result(lines_.begin(), lines_.end());
  if (!current_.empty()) result.push_back(current_);
  if (result.size() > kMaxLines) result.erase(result.begin());
  return result;
}

}  // namespace hvd::driver
