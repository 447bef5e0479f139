// Questions to the running jobs of this user, or of all users for root, at their sockets
// (driver/status/control_server.h). Each call blocks for at most some ten seconds.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/status.h"
#include "driver/status/job_sockets.h"

namespace hvd::cli {

// The answer, as it may be shown on a terminal: for root it may be that of another user's program.
// `method`: GET or POST. not_found: nobody listens there, since the job is over; unavailable: it
// does not answer; permission_denied: a program of another user listens there, and was sent
// nothing; failed_precondition: it refuses, for the reason in the message.
Result<std::string> ask_job(const driver::JobSocket& job, const std::string& method,
                            const std::string& target, std::string body = {});
// An object, whose texts are as they came (status_text.h). data_loss: the answer is not a status.
Result<nlohmann::json> ask_status(const driver::JobSocket& job);

struct FoundJob {
  driver::JobSocket socket;
  Result<nlohmann::json> status;  // its answer, or why there is none
};

// Those whose id begins with `wanted`, and that are not over; all are asked at the same time.
std::vector<FoundJob> find_jobs(const std::string& wanted);
// The only one of them.
Result<FoundJob> find_job(const std::string& wanted);

}  // namespace hvd::cli
