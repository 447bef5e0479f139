// Questions to the running jobs of this user, or of all users for root, at their sockets
// (driver/status/control_server.h). All calls block, for at most some ten seconds for each job.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "driver/status/job_sockets.h"

namespace hvd::cli {

// `method`: GET or POST. not_found: nobody listens there, since the job is over; unavailable: it
// does not answer; failed_precondition: it refuses, for the reason in the message.
Result<std::string> ask_job(const driver::JobSocket& job, const std::string& method,
                            const std::string& target, std::string body = {});

struct FoundJob {
  driver::JobSocket socket;
  Result<std::string> status;  // its answer, or why there is none
};

// Those whose id begins with `wanted`, and that are not over.
std::vector<FoundJob> find_jobs(const std::string& wanted);
// The only one of them.
Result<FoundJob> find_job(const std::string& wanted);

}  // namespace hvd::cli
