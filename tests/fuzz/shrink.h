// Makes a plan in which something was found as small as it can be with the same kind of finding:
// fewer calls, ranks and elements, and fewer things that are not as usual. For one thread.
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

// Until nothing can be left out any more, or the deadline. A plan that needs luck to fail is tried
// several times.
Shrunk shrink(const Plan& plan, const Finding& finding, TimePoint deadline);

}  // namespace hvd::fuzz
