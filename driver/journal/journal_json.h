// The events that go into the job's state machine and the actions that come out of it
// (driver/job/job_io.h), as JSON: each event and each action is an object with its name and its
// fields, which are called as in that header. docs/events.md describes it for readers,
// docs/events.schema.json for programs. Pure.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/status.h"
#include "driver/job/job.h"
#include "driver/job/job_options.h"

namespace hvd::driver {

// {"event": "exited", "host": 0, ...}. Where it is about a host of `hosts`, "host_name" says which.
nlohmann::json json_of(const Event& event, const std::vector<JobHost>& hosts);
// data_loss: it is no event, or one of its fields is missing or wrong.
Result<Event> event_from(const nlohmann::json& json);

// {"action": "launch", "host": 0, "host_name": "a", ...}
nlohmann::json json_of(const Action& action, const std::vector<JobHost>& hosts);

nlohmann::json json_of(const JobStart& start);
// data_loss, as above. Values are taken as they are: who wrote it is trusted.
Result<JobStart> job_start_from(const nlohmann::json& json);

}  // namespace hvd::driver
