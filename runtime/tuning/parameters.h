// What can be changed while a world runs. Rank 0 decides; what the others must know travels with
// each decision. A value.
#pragma once

#include <cstddef>

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

}  // namespace hvd::runtime
