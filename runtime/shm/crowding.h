// Whether other programs keep the cores that the ranks of a host need. Then each step of a
// collective lasts for as long as the last of its ranks waits for a core, however little there is
// to do in it, and a collective takes less time in fewer and larger steps.
//
// A rank measures for how long its thread was ready to run and had no core in collectives of many
// small chunks. Ranks that share cores with each other alone wait some 0.04 ms for each chunk,
// times the ranks per core, and beside other programs several times as much. While cores are
// presumed to be crowded nothing is measured, because chunks are large then. The presumption ends
// after some seconds, so that small chunks are tried again. A value, for one thread at a time.
#pragma once

#include <chrono>
#include <cstddef>

#include "base/clock.h"

namespace hvd::runtime {

class Crowding {
 public:
  // `ranks_per_core`: of the host, at least 1.
  explicit Crowding(double ranks_per_core)
      : limit_(std::chrono::duration_cast<Duration>(ranks_per_core * kLimitOfRank)) {}

  // Counts the small chunks of a collective, and the time for which its thread was ready to run and
  // had no core meanwhile.
  void passed(std::size_t chunks, Duration without_core, TimePoint now);
  bool is_crowded(TimePoint now) const { return now < until_; }

 private:
  static constexpr std::size_t kChunks = 64;  // between two judgements
  static constexpr std::chrono::duration<double, std::micro> kLimitOfRank{75};  // for each chunk
  static constexpr std::chrono::seconds kShortest{1};
  static constexpr std::chrono::seconds kLongest{16};

  Duration limit_;
  std::size_t chunks_ = 0;  // since the last judgement
  Duration without_core_{};
  Duration presumed_for_{};  // doubles each time that cores are found crowded in a row
  TimePoint until_{};
};

}  // namespace hvd::runtime
