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

// Where the ranks of one world, as threads, leave their blobs: round after round, each for all.
class Hub {
 public:
  explicit Hub(int size) : size_(size) {}

  Result<std::vector<std::string>> exchange(int rank, std::string_view blob, TimePoint deadline) {
    std::unique_lock lock(mutex_);
    const std::size_t round = blobs_[rank].size();
    blobs_[rank].emplace_back(blob);
    changed_.notify_all();
    const auto is_missing = [&](int other) { return blobs_[other].size() <= round; };
    const auto all_there = [&] {
      for (int other = 0; other < size_; ++other) {
        if (is_missing(other)) return false;
      }
      return true;
    };
    if (!changed_.wait_until(lock, deadline, all_there)) {
      std::vector<std::string> missing;
      for (int other = 0; other < size_; ++other) {
        if (is_missing(other)) missing.push_back(cat("rank ", other));
      }
      return Status(Code::deadline_exceeded, cat("missing: ", join(missing, ", ")));
    }
    std::vector<std::string> all;
    for (const auto& [from, texts] : blobs_) all.push_back(texts[round]);
    return all;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int size_;
  std::map<int, std::vector<std::string>> blobs_;
};

}  // namespace hvd::test
