// What `hvdrun status`, `top` and `jobs` show of the answers of jobs (docs/status.md). Pure.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "base/status.h"

namespace hvd::cli {

// data_loss: it is not such a document.
Result<std::string> status_text(const std::string& answer);
// An array of such documents, a line for each. Throws what nlohmann/json throws.
std::string jobs_text(const nlohmann::json& jobs);

}  // namespace hvd::cli
