// Runs a plan: forms its world of ranks that are threads or processes, lets them run its
// collectives, and checks the results. For one thread.
#pragma once

#include <optional>
#include <string>

#include "tests/fuzz/plan.h"

namespace hvd::fuzz {

struct Finding {
  std::string text;  // the first finding of any rank
  int window = -1;   // the window of the finding; -1: forming or leaving the world
  int call = -1;     // its number; -1: the window as a whole
};

// Empty: everything was right. Blocks until the plan is done; a hang is reported after a minute.
std::optional<Finding> run(const Plan& plan);

}  // namespace hvd::fuzz
