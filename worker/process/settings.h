// The values of the runtime's tunables (base/knobs.h) in the environment, read once per init().
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include "base/knobs.h"
#include "base/status.h"
#include "runtime/core/config.h"

namespace hvd::worker {

struct Settings {
  runtime::Config config;
  bool dynamic_process_sets = false;  // also if InitOptions does not say so
};

// An error names the variable, its value and what is allowed.
Result<Settings> settings_from_environment(const EnvironmentLookup& lookup);
// HVD_STATE_ON_DEVICE_LIMIT, in bytes; nothing: it is not set.
Result<std::optional<std::size_t>> on_device_limit(const EnvironmentLookup& lookup);
// Where the state of a job is kept.
struct StateFileSettings {
  std::string file;  // HVD_STATE_FILE; empty: it is not set
  // HVD_STATE_EVERY: how often it is written during training; 0: only when the job is suspended.
  std::chrono::milliseconds every{0};
};
Result<StateFileSettings> state_file(const EnvironmentLookup& lookup);
// HVD_LEDGER; empty: it is not set.
Result<std::string> ledger_file(const EnvironmentLookup& lookup);
// The core that HVD_THREAD_AFFINITY gives to this local rank: of a list the one at its place, of
// one core that one; -1: it is not set. A list that is too short is an error.
Result<int> core_from_environment(const EnvironmentLookup& lookup, int local_rank, int local_size);
// HVD_LOG_LEVEL and HVD_LOG_HIDE_TIME; `source` stands in each line.
Status apply_log_settings(const EnvironmentLookup& lookup, std::string_view source);

}  // namespace hvd::worker
