// The parameters that can change while a world runs. Rank 0 decides; whatever the others must know
// is sent with each response. Values.
#pragma once

#include <cstddef>
#include <string>

#include "base/clock.h"

namespace hvd::runtime {

struct Parameters {
  std::size_t fusion_threshold = std::size_t{128} << 20;
  Duration cycle_time = std::chrono::milliseconds(1);
  bool cache = true;  // whether the response cache is used
  bool hierarchical_allreduce = false;
  bool hierarchical_allgather = false;
  friend bool operator==(const Parameters&, const Parameters&) = default;
};

// The parameters that must not change: those that a person has set, and those that would change
// results.
struct Frozen {
  bool fusion_threshold = false;
  bool cycle_time = false;
  bool cache = false;
  bool hierarchical_allreduce = false;
  bool hierarchical_allgather = false;
};

struct TuningOptions {
  bool enabled = false;
  std::string log_path = {};  // CSV; empty: no log
  int warmup_samples = 3;     // samples discarded at the start
  int steps_per_sample = 10;
  int max_samples = 20;  // samples of candidates in one search
  double noise = 0.8;    // expected noise of a sample, 0 to 1; race.h
  Frozen frozen = {};
};

}  // namespace hvd::runtime
