// Runs a plan: forms its world of ranks that are threads or processes, has them do its collectives,
// and compares what comes out. For one thread.
#pragma once

#include <optional>
#include <string>

#include "tests/fuzz/plan.h"

namespace hvd::fuzz {

struct Finding {
  std::string text;  // the first that any rank found
  int window = -1;   // in which it was; -1: forming, or leaving the world
  int call = -1;     // its number; -1: the window as a whole
};

// Nothing: all was right. Blocks for as long as the plan takes; what hangs is found after a minute.
std::optional<Finding> run(const Plan& plan);

}  // namespace hvd::fuzz
