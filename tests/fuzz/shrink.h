// Shrinks a plan with a finding as far as the same kind of finding remains: fewer calls, ranks and
// elements, and fewer unusual settings. For one thread.
#pragma once

#include <string>

#include "base/clock.h"
#include "tests/fuzz/plan.h"
#include "tests/fuzz/run.h"

namespace hvd::fuzz {

struct Shrunk {
  Plan plan;
  Finding finding;
  int runs = 0;
};

// Shrinks until nothing can be left out, or the deadline. A plan that fails only sometimes is tried
// several times.
Shrunk shrink(const Plan& plan, const Finding& finding, TimePoint deadline);

}  // namespace hvd::fuzz
