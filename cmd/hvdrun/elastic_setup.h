// Settings of an elastic job. Pure.
#pragma once

#include <optional>

#include "base/status.h"
#include "cmd/hvdrun/settings.h"
#include "driver/core/job_spec.h"
#include "driver/job/plan.h"

namespace hvd::cli {

// Whether the settings ask for an elastic job: by a discovery script, --min-np, --max-np, or
// --max-restarts above 0.
bool is_elastic(const Values& values);
// An error if -np, --min-np and --max-np contradict each other.
Status check_worker_numbers(const Values& values);

// Empty for a static job. `spec` has hosts and processes; `plan` has members if all slots of the
// named hosts are known.
Result<std::optional<driver::ElasticSpec>> elastic_spec(const Values& values,
                                                        const driver::JobSpec& spec,
                                                        const driver::Plan& plan, bool discovers);

// "10 100", "10,100": two numbers of seconds, the first not greater.
struct SecondsRange {
  double low = 0;
  double high = 0;
};
std::optional<SecondsRange> parse_seconds_range(std::string_view text);

}  // namespace hvd::cli
