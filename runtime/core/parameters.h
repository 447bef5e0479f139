// What can be changed while a world runs. Rank 0 decides; what the others must know travels with
// each decision. Values.
#pragma once

#include <cstddef>
#include <string>

#include "base/clock.h"

namespace hvd::runtime {

struct Parameters {
  std::size_t fusion_threshold = std::size_t{128} << 20;
  Duration cycle_time = std::chrono::milliseconds(1);
  bool cache = true;  // whether ids stand for what was agreed before
  bool hierarchical_allreduce = false;
  bool hierarchical_allgather = false;
  friend bool operator==(const Parameters&, const Parameters&) = default;
};

// What must stay as it is: what a person has set, and what would change results.
struct Frozen {
  bool fusion_threshold = false;
  bool cycle_time = false;
  bool cache = false;
  bool hierarchical_allreduce = false;
  bool hierarchical_allgather = false;
};

struct TuningOptions {
  bool enabled = false;
  std::string log_path = {};  // CSV; empty: none
  int warmup_samples = 3;     // that are thrown away at first
  int steps_per_sample = 10;
  int max_samples = 20;  // of others than the parameters in force, in one search
  double noise = 0.8;    // 0 to 1: how much a sample is expected to be off; race.h
  Frozen frozen = {};
};

}  // namespace hvd::runtime
