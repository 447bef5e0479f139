// What `hvdrun status`, `top` and `jobs` show of the answers of jobs (docs/status.md), made
// printable: for root an answer may be that of another user's program. Pure.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "base/status.h"

namespace hvd::cli {

// data_loss: it is not such a document.
Result<std::string> status_text(const nlohmann::json& answer);
// An array of documents for which is_job_status() holds, a line for each.
std::string jobs_text(const nlohmann::json& jobs);
bool is_job_status(const nlohmann::json& answer);

}  // namespace hvd::cli
