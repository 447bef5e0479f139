// The status of a running job as JSON: the answer to `hvdrun status`. Pure; the fields are
// documented in docs/status.md.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "base/clock.h"
#include "driver/job/job.h"

namespace hvd::driver {

// The version of the documents: it changes when a field goes or means something else.
inline constexpr int kStatusSchema = 1;

// A world that was in force, or is. Of a job with many, only the last ones are kept.
inline constexpr std::size_t kMaxPastWorlds = 1'000;
struct PastWorld {
  std::uint64_t generation = 0;
  std::chrono::system_clock::time_point at;
  std::size_t size = 0;
  std::string why;  // empty: it is the first
};

// The facts about a job that never change.
struct JobIdentity {
  std::string id;
  int pid = 0;  // of hvdrun
  std::vector<std::string> command;
  std::string directory;
  bool elastic = false;
  std::chrono::system_clock::time_point started;
};

nlohmann::json job_status(const JobIdentity& identity, const Job& job,
                          const std::vector<PastWorld>& worlds,
                          std::chrono::system_clock::time_point wall_time, TimePoint now);

// "2026-11-25T12:00:00.250Z"
std::string utc_text(std::chrono::system_clock::time_point time);

}  // namespace hvd::driver
