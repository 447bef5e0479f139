// Questions to the running jobs of this user, or of all users for root, at their sockets
// (driver/status/control_server.h). Each call blocks for at most some ten seconds.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/status.h"
#include "driver/status/job_sockets.h"

namespace hvd::cli {

// The answer, as it may be shown on a terminal: for root it may be that of another user's program.
// `method`: GET or POST. not_found: nobody listens there, since the job is over; unavailable: it
// does not answer; permission_denied: a program of another user listens there, and was sent
// nothing; resource_exhausted: its answer is too large; failed_precondition: it refuses, for the
// reason in the message.
Result<std::string> ask_job(const driver::JobSocket& job, const std::string& method,
                            const std::string& target, std::string body = {});
// An object, whose texts are as they came (status_text.h). data_loss: the answer is not a status.
Result<nlohmann::json> ask_status(const driver::JobSocket& job);

// The texts that are kept of a job's status, since all of them would be much. Called for each
// answer. An error counts as the job's.
using KeptOfStatus = std::function<Result<std::vector<std::string>>(const nlohmann::json& status)>;

struct FoundJob {
  driver::JobSocket socket;
  Result<std::vector<std::string>> kept;  // of its status, or why there is none
};

// Those whose id begins with `wanted`, and that are not over; all are asked at the same time.
// resource_exhausted: the answers in a directory of another user are too large.
std::vector<FoundJob> find_jobs(const std::string& wanted, const KeptOfStatus& keep);
// The only one of them.
Result<FoundJob> find_job(const std::string& wanted, const KeptOfStatus& keep);

}  // namespace hvd::cli
