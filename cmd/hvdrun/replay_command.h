// `hvdrun replay FILE`: goes through the journal of a job again (driver/journal/replay.h).
#pragma once

#include <string>

#include "base/status.h"

namespace hvd::cli {

// The text to print if hvdrun would take each decision again. failed_precondition: it would take
// another one, and the text says which. Other errors: the file cannot be read, or is no journal.
Result<std::string> replay_file(const std::string& file);

}  // namespace hvd::cli
