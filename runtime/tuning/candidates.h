// Which parameters a search tries, one after the other: from those in force one step along one of
// them, first the steps that change most. A number moves by a factor of 4, and on in the same
// direction as long as that wins; where it has won, steps of 2 follow. What cannot matter for the
// work at hand is not tried: a fusion threshold beyond the largest batch, ways of allgather where
// none is made.
//
// A pure state machine: next(), then result(), and so on.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "runtime/core/parameters.h"
#include "runtime/tuning/step_meter.h"

namespace hvd::runtime {

class Candidates {
 public:
  static constexpr std::size_t kLeastFusion = std::size_t{64} << 10;
  static constexpr std::size_t kMostFusion = std::size_t{512} << 20;
  static constexpr std::chrono::microseconds kShortestCycle{50};
  static constexpr std::chrono::milliseconds kLongestCycle{64};

  // Begins at `incumbent`; if these are not the defaults, those are the first candidate.
  Candidates(const Parameters& incumbent, const Parameters& defaults, const Frozen& frozen,
             const Sample& work);

  // Nothing: all were tried.
  std::optional<Parameters> next();
  // What the last one of next() came to; if it won, it is the incumbent from here on.
  void result(bool won);
  const Parameters& incumbent() const { return incumbent_; }

 private:
  enum class Axis {
    fusion,
    cycle,
    cache,
    hierarchical_allreduce,
    hierarchical_allgather,
    defaults
  };
  struct Move {
    Axis axis;
    double factor = 1;  // of numbers
  };
  std::optional<Parameters> moved(const Move& move) const;
  bool was_tried(const Parameters& parameters) const;

  Parameters incumbent_;
  Parameters defaults_;
  Sample work_;
  std::deque<Move> moves_;
  Move last_{Axis::defaults, 1};
  Parameters candidate_;
  std::vector<Parameters> tried_;
};

}  // namespace hvd::runtime
