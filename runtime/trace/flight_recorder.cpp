#include "runtime/trace/flight_recorder.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <system_error>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/security/written_file.h"
#include "base/text.h"
#include "runtime/trace/json_text.h"

namespace hvd::runtime::trace {
namespace {

constexpr std::size_t kInSummary = 5;

void append_ago(std::string& out, std::string_view name, Nanoseconds time, Nanoseconds now) {
  out += cat(",\"", name, "\":");
  if (time == 0) {
    out += "null";
  } else {
    append_thousandths(out, std::max<Nanoseconds>(0, now - time) / 1000);
  }
}

std::string named(const Recorder::View& operation) {
  return cat(kind_name(operation.kind), " \"", operation.name, "\" (", operation.bytes, " bytes)");
}

// When the operation entered its current state.
Nanoseconds since(const Recorder::View& operation) {
  if (operation.ended != 0) return operation.ended;
  if (operation.begun != 0) return operation.begun;
  return operation.enqueued;
}

}  // namespace

std::string_view state_of(const Recorder::View& operation) {
  if (operation.ended != 0) return operation.error.ok() ? "done" : "failed";
  if (operation.begun != 0) return "runs";
  if (operation.decided != 0) return "waits in line";
  return "waits for other ranks";
}

std::string flight_report(const WorldSpec& spec, const Views& operations, std::string_view reason,
                          Nanoseconds now) {
  const auto& self = spec.members[static_cast<std::size_t>(spec.rank)];
  std::string out = cat("{\"rank\":", spec.rank, ",\"ranks\":", spec.size(),
                        ",\"generation\":", spec.generation, ",\"worker\":");
  append_quoted(out, self.worker);
  out += ",\"host\":";
  append_quoted(out, self.host);
  out += ",\"reason\":";
  append_quoted(out, reason);
  out += cat(",\"written_since_epoch_in_micros\":",
             std::chrono::duration_cast<std::chrono::microseconds>(
                 std::chrono::system_clock::now().time_since_epoch())
                 .count(),
             ",\"operations\":[");

  bool first = true;
  for (const auto& operation : operations) {
    out += first ? "\n" : ",\n";
    first = false;
    out += "{\"state\":\"";
    out += state_of(operation);
    out += cat("\",\"kind\":\"", kind_name(operation.kind), "\",\"name\":");
    append_quoted(out, operation.name);
    out += cat(",\"process_set\":", operation.process_set, ",\"dtype\":\"",
               type_name(operation.type), "\",\"bytes\":", operation.bytes,
               ",\"batch\":", operation.batch, ",\"batch_tensors\":", operation.batch_size);
    append_ago(out, "enqueued_ms_ago", operation.enqueued, now);
    append_ago(out, "asked_ms_ago", operation.asked, now);
    append_ago(out, "decided_ms_ago", operation.decided, now);
    append_ago(out, "begun_ms_ago", operation.begun, now);
    append_ago(out, "ended_ms_ago", operation.ended, now);
    out += ",\"error\":";
    if (operation.error.ok()) {
      out += "null}";
    } else {
      append_quoted(out, operation.error.message());
      out += '}';
    }
  }

  out += "\n]}\n";
  return out;
}

FlightDigest flight_digest(const Views& operations, Nanoseconds now) {
  std::size_t in_flight = 0;
  const Recorder::View* last = nullptr;
  FlightDigest words{"nothing", "nothing"};
  for (const auto& operation : operations) {
    if (operation.ended != 0) {
      last = &operation;
      continue;
    }
    if (++in_flight > kInSummary) continue;
    const std::string text = cat(named(operation), ' ', state_of(operation), " for ",
                                 measured_text(std::chrono::nanoseconds(now - since(operation))));
    words.in_flight = in_flight == 1 ? text : cat(words.in_flight, ", ", text);
  }

  if (in_flight > kInSummary) words.in_flight += cat(", and ", in_flight - kInSummary, " more");
  if (last != nullptr) {
    words.last = cat(named(*last), ", ", state_of(*last), ' ',
                     measured_text(std::chrono::nanoseconds(now - last->ended)), " ago");
  }

  return words;
}

std::string flight_summary(const Views& operations, Nanoseconds now) {
  const auto in_flight =
      std::count_if(operations.begin(), operations.end(),
                    [](const Recorder::View& operation) { return operation.ended == 0; });
  const auto words = flight_digest(operations, now);
  std::string text = "nothing in flight";
  if (in_flight == 1) text = cat("1 operation in flight: ", words.in_flight);
  if (in_flight > 1) text = cat(in_flight, " operations in flight: ", words.in_flight);
  const bool any_ended = static_cast<std::size_t>(in_flight) < operations.size();
  return cat(text, any_ended ? cat("; the last that ended: ", words.last)
                             : std::string("; nothing has ended before"));
}

std::string flight_file_name(const WorldSpec& spec) {
  return cat("flight-recorder.rank-", spec.rank, '.', spec.generation, ".json");
}

Status make_flight_directory(const std::string& directory) {
  if (directory.empty() || directory == kFlightToStderr) return {};
  const auto opened =
      open_directory_to_write(directory, "flight recorder's directory", WhenMissing::make);
  if (opened.ok() && ::access(directory.c_str(), W_OK | X_OK) == 0) return {};
  return {Code::invalid_argument,
          cat("HVD_FLIGHT_RECORDER=", directory,
              ": it must be a directory that can be written to, or \"stderr\"",
              opened.ok() ? "" : cat(" (", opened.status().message(), ")"))};
}

Status write_flight_report(const std::string& directory, const std::string& name,
                           std::string_view report) {
  return write_whole_file(cat(directory, '/', name), report, WhenThere::replace,
                          {.what = "flight recorder's report", .mode = 0666});
}

}  // namespace hvd::runtime::trace
