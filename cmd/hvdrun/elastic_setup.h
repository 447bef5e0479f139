// What the settings say of a job whose world changes. Pure.
#pragma once

#include <optional>

#include "base/status.h"
#include "cmd/hvdrun/settings.h"
#include "driver/job_spec.h"

namespace hvd::cli {

// Nothing if the job is a static one: neither a discovery script nor --min-np nor --max-np is
// given. `spec` as far as it stands: hosts and processes; `planned`: how many workers the named
// hosts are to have, 0 if none are named.
Result<std::optional<driver::ElasticSpec>> elastic_spec(const Values& values,
                                                        const driver::JobSpec& spec, int planned);

// "10 100", "10,100": two numbers of seconds, the first not greater.
struct SecondsRange {
  double low = 0;
  double high = 0;
};
std::optional<SecondsRange> parse_seconds_range(std::string_view text);

}  // namespace hvd::cli
