// The log of hosts while they are made ready (--log-level INFO). Pure.
#pragma once

#include <string>

#include "driver/job/job.h"

namespace hvd::driver {

// "host a: authenticate" for an event that `job` has handled; empty if it tells nothing of that.
std::string host_log_text(const Event& event, const Job& job);

}  // namespace hvd::driver
