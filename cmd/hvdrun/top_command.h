// `hvdrun top`: the status of a job on the terminal, drawn anew once a second, until the job or the
// user ends it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/status.h"
#include "driver/status/job_sockets.h"

namespace hvd::cli {

// Blocks. Returns what is to be printed afterwards: nothing, or that the job is over. Leaves the
// terminal as it was, also if a signal ends the process. failed_precondition: standard input or
// output is not a terminal.
Result<std::string> run_top(const driver::JobSocket& job);

// The lines of `text` that a screen of this size shows. Long lines are cut; if some do not fit, the
// last line says how many. Each line clears what was there before. Pure.
std::string top_frame(std::string_view text, std::size_t rows, std::size_t columns);

}  // namespace hvd::cli
