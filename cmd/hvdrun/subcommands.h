// The command lines of `hvdrun rendezvous` and `hvdrun agent`.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "cmd/hvdrun/options.h"

namespace hvd::cli {

// `words` without the program's and the subcommand's name.
Result<CommandLine> parse_rendezvous(const std::vector<std::string>& arguments);
Result<CommandLine> parse_agent(const std::vector<std::string>& arguments);

}  // namespace hvd::cli
