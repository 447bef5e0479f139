// `hvdrun replay FILE`: goes through the journal of a job again (driver/journal/replay.h).
#pragma once

#include <string>

#include "base/status.h"

namespace hvd::cli {

// What to print if each decision is the one that was taken then. failed_precondition: one is not,
// and the text says which; else the file cannot be read, or is no journal.
Result<std::string> replay_file(const std::string& file);

}  // namespace hvd::cli
