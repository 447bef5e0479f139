// What the parts of a job take, made of its JobSpec. Pure, but for the seed of an elastic job.
#pragma once

#include <cstdint>
#include <string>

#include "driver/agents/agent_session.h"
#include "driver/agents/preparation.h"
#include "driver/core/job_spec.h"
#include "driver/core/observer.h"
#include "driver/job/job_options.h"
#include "driver/run/job_context.h"
#include "rendezvous/server.h"

namespace hvd::driver {

JobStart job_start(const JobSpec& spec, const std::string& job_id, const Preparation& preparation);

// `spec` and `observer` outlive the server, and `find_worker` works as long as that serves.
rendezvous::ServerOptions server_options(const JobSpec& spec, Observer& observer,
                                         rendezvous::FindWorker find_worker);

// What the agent of this host is told at first. `open_files`: the limit that this process has
// raised for itself, before that.
AgentSessionOptions session_options(const JobContext& context, HostIndex host,
                                    const event::FoundHost& found, std::uint64_t open_files);

}  // namespace hvd::driver
