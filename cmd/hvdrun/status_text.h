// The text that `hvdrun status`, `top` and `jobs` show of the answers of jobs (docs/status.md),
// made printable: for root an answer may be that of another user's program. Pure.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/status.h"

namespace hvd::cli {

// data_loss: it is not such a document.
Result<std::string> status_text(const nlohmann::json& answer);
bool is_job_status(const nlohmann::json& answer);
// The cells of a job's line. `status`: a document for which is_job_status() holds.
std::vector<std::string> job_row(const nlohmann::json& status);
std::string jobs_text(const std::vector<std::vector<std::string>>& rows);

}  // namespace hvd::cli
