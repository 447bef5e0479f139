// The status of a running job as JSON: the answer to `hvdrun status`. Pure; the fields are
// documented in docs/status.md.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/clock.h"
#include "driver/job/job.h"
#include "driver/job/job_options.h"
#include "driver/work/work_watch.h"

namespace hvd::driver {

// The version of the documents: it changes when a field goes or means something else.
inline constexpr int kStatusSchema = 1;

// A world that was in force, or is. Of a job with many, only the last ones are kept.
inline constexpr std::size_t kMaxPastWorlds = 1'000;
struct PastWorld {
  std::uint64_t generation = 0;
  std::chrono::system_clock::time_point at;
  std::size_t size = 0;
  std::string why;                             // empty: it is the first
  std::optional<event::WorldEntered> entered;  // nothing: that is not known, or not yet
};

nlohmann::json job_status(const JobIdentity& identity, const Job& job, const WorkWatch& work,
                          const std::vector<PastWorld>& worlds,
                          std::chrono::system_clock::time_point wall_time, TimePoint now);

}  // namespace hvd::driver
