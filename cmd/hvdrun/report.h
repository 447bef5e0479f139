// What hvdrun says when a job has ended badly: one paragraph that a person can act on. Pure.
#pragma once

#include <string>

#include "driver/driver.h"

namespace hvd::cli {

// Lines with their ends; empty for a job that ended well.
std::string failure_report(const driver::Outcome& outcome);

}  // namespace hvd::cli
