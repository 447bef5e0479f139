// The command lines of `hvdrun rendezvous` and `hvdrun agent`.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "cmd/hvdrun/flag_table.h"
#include "cmd/hvdrun/options.h"

namespace hvd::cli {

// `arguments` without the names of the program and the subcommand.
Result<CommandLine> parse_rendezvous(const std::vector<std::string>& arguments);
Result<CommandLine> parse_agent(const std::vector<std::string>& arguments);

FlagTable rendezvous_flag_table();
FlagTable agent_flag_table();

}  // namespace hvd::cli
