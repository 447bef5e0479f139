// Where ranks that are threads of one test meet.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/text.h"

namespace hvd::test {

inline constexpr std::chrono::seconds kLong{60};  // the deadline of what normally ends at once

// Where the ranks of one world, as threads, leave their blobs.
class Hub {
 public:
  explicit Hub(int size) : size_(size) {}

  Result<std::vector<std::string>> exchange(int rank, std::string_view blob, TimePoint deadline) {
    std::unique_lock lock(mutex_);
    blobs_[rank] = blob;
    changed_.notify_all();
    const auto all_there = [this] { return static_cast<int>(blobs_.size()) == size_; };
    if (!changed_.wait_until(lock, deadline, all_there)) {
      std::vector<std::string> missing;
      for (int other = 0; other < size_; ++other) {
        if (!blobs_.contains(other)) missing.push_back(cat("rank ", other));
      }
      return Status(Code::deadline_exceeded, cat("missing: ", join(missing, ", ")));
    }
    std::vector<std::string> all;
    for (const auto& [from, text] : blobs_) all.push_back(text);
    return all;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int size_;
  std::map<int, std::string> blobs_;
};

}  // namespace hvd::test
