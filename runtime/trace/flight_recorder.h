// What the last operations of this rank were, in words, for somebody whose job has failed or hangs:
// all of it as a file of JSON, one operation a line, and the essence as one line for the log.
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
// The same in two parts, for a table.
struct FlightWords {
  std::string in_flight;  // "allreduce "a" (4 KB) waits for other ranks for 12.3 s, ...", "nothing"
  std::string last;       // that ended: "allreduce "b" (4 KB), done 12.4 s ago"; "nothing"
};
FlightWords flight_words(const Views& operations, Nanoseconds now);

// "flight-recorder.rank-3.1.json": rank and generation.
std::string flight_file_name(const WorldSpec& spec);
// Replaces this rank's file in the directory, as a whole.
Status write_flight_report(const std::string& directory, const WorldSpec& spec,
                           std::string_view report);

}  // namespace hvd::runtime::trace
