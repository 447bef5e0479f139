// The manual page hvdrun(1). Pure.
#pragma once

#include <string>
#include <vector>

#include "cmd/hvdrun/flag_table.h"

namespace hvd::cli {

// In the language of troff, with the macros of man(7).
std::string man_page(const std::vector<FlagTable>& tables);

}  // namespace hvd::cli
