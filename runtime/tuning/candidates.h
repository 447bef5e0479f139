// The candidates of a search, one after the other: each differs from the parameters in force in one
// of them, and the changes with the largest effect come first. A number changes by a factor of 4,
// and again in the same direction as long as that wins; where it has won, steps of 2 follow.
// Changes that cannot matter for the current work are left out: a fusion threshold beyond the
// largest batch, algorithms of allgather where there is no allgather.
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

  // Starts from `incumbent`; if these are not the defaults, the defaults are the first candidate.
  Candidates(const Parameters& incumbent, const Parameters& defaults, const Frozen& frozen,
             const Sample& work);

  // The next candidate; nothing if all were tried.
  std::optional<Parameters> next();
  // The result of the last candidate; if it won, it becomes the incumbent.
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
    double factor = 1;  // for numeric parameters
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
