// Reports on the last operations of this rank, for a person whose job has failed or hangs: the
// whole report as a JSON file, one operation per line, and a summary as one line for the log.
// Functions of what the Recorder knows; safe from any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "runtime/core/world_spec.h"
#include "runtime/trace/recorder.h"

namespace hvd::runtime::trace {

using Views = std::vector<Recorder::View>;

// Where an operation stands: "waits for other ranks", "waits in line", "runs", "done", "failed".
std::string_view state_of(const Recorder::View& operation);

// The whole report. Times are in milliseconds before `now`, and null where nothing has happened.
std::string flight_report(const WorldSpec& spec, const Views& operations, std::string_view reason,
                          Nanoseconds now);
// "2 operations in flight: allreduce "a" (4 KB) waits for other ranks for 12.3 s, ...".
std::string flight_summary(const Views& operations, Nanoseconds now);
// The summary in two parts, for a table.
struct FlightDigest {
  std::string in_flight;  // "allreduce "a" (4 KB) waits for other ranks for 12.3 s, ...", "nothing"
  // The operation that ended last: "allreduce "b" (4 KB), done 12.4 s ago"; "nothing".
  std::string last;
};
FlightDigest flight_digest(const Views& operations, Nanoseconds now);

// Instead of a directory: the log.
inline constexpr std::string_view kFlightToStderr = "stderr";
// Makes the directory of HVD_FLIGHT_RECORDER if it is not there: better an error at the start than
// nothing to read after a crash.
Status make_flight_directory(const std::string& directory);
// "flight-recorder.rank-3.1.json": rank and generation.
std::string flight_file_name(const WorldSpec& spec);
// Atomically replaces the file of this name in the directory.
Status write_flight_report(const std::string& directory, const std::string& name,
                           std::string_view report);

}  // namespace hvd::runtime::trace
