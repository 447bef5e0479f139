// The report of a failed job: one paragraph that a person can act on. Pure.
#pragma once

#include <string>

#include "driver/driver.h"

namespace hvd::cli {

// Complete lines; empty for a job that has succeeded.
std::string failure_report(const driver::Outcome& outcome, const std::string& state_file = {});

}  // namespace hvd::cli
