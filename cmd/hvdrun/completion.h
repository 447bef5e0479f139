// Completions of hvdrun's command line for a shell. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cmd/hvdrun/flag_table.h"

namespace hvd::cli {

// The text of a file that the shell loads: "bash", "zsh" or "fish". Another shell is an error.
Result<std::string> completion_script(std::string_view shell, const std::vector<FlagTable>& tables);

}  // namespace hvd::cli
