// The report of a failed job: one paragraph that a person can act on. Pure.
#pragma once

#include <string>

#include "driver/driver.h"

namespace hvd::cli {

// Complete lines; empty for a job that has succeeded. The last lines that the failed worker wrote
// to stderr are in it, unless the user has just seen them.
std::string failure_report(const driver::Outcome& outcome, const std::string& state_file = {},
                           bool stderr_was_shown = false);

// Where more can be read of a job; empty: nothing was written.
struct KeptOutput {
  std::string directory;  // of the workers' output
  std::string journal;
};
// The last line on a job: how long it took and what happened to its world; empty if it did not
// begin.
std::string end_line(const driver::Outcome& outcome, bool elastic, const KeptOutput& kept);

}  // namespace hvd::cli
