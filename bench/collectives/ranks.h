// Ranks that are processes, forked before anything has threads, and what they share: a page of
// memory. For benchmarks.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

#include "runtime/control/world.h"

namespace hvd::bench {

class Ranks final : public runtime::Exchange {
 public:
  // Returns `size` times: in this process and in those that it forked.
  explicit Ranks(int size);
  // Waits for the others to come here, too; in the first process, until they have ended.
  ~Ranks() override;
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  // Everybody's blob, as soon as all are there.
  Result<std::vector<std::string>> exchange(std::string_view blob, TimePoint deadline) override;
  // Returns when all have come here.
  void meet() { (void)exchange({}, kNever); }

 private:
  static constexpr int kMaxRanks = 64;
  static constexpr std::size_t kMaxBlob = 64 << 10;
  struct Shared {
    std::atomic<int> arrived = 0;
    std::atomic<int> left = 0;
    std::array<std::size_t, kMaxRanks> sizes = {};
    std::array<std::array<char, kMaxBlob>, kMaxRanks> blobs = {};
  };
  void meet(std::atomic<int>& counter, int until) const;

  Shared* shared_;
  int size_;
  int rank_ = 0;
  int exchanges_ = 0;
};

}  // namespace hvd::bench
