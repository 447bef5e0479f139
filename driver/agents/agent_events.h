// Translation of an agent's frames (base/protocol/agent_link.h) to events of the job. Pure.
#pragma once

#include <optional>

#include "base/frame.h"
#include "base/status.h"
#include "driver/job/job_io.h"

namespace hvd::driver {

// The event that this frame of the agent of `host` stands for; nullopt if frames of its kind stand
// for none. An error means that the frame is malformed.
Result<std::optional<Event>> event_of(HostIndex host, const Frame& frame);

}  // namespace hvd::driver
