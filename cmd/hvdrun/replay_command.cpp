#include "cmd/hvdrun/replay_command.h"

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "base/printable.h"
#include "base/text.h"
#include "base/versions.h"
#include "driver/journal/replay.h"

namespace hvd::cli {
namespace {

std::string difference_text(const driver::Replayed& replayed) {
  const auto& difference = *replayed.difference;
  std::string text = cat("line ", difference.line, ": after ", printable(difference.event));
  const auto add = [&](const std::string& heading, const std::vector<std::string>& actions) {
    text += cat("\n  ", heading, ":");
    if (actions.empty()) text += " nothing";
    for (const auto& action : actions) text += cat("\n    ", printable(action));
  };
  add(cat("hvdrun ", printable(replayed.build), " decided"), difference.then);
  add(cat("hvdrun ", build_id(), " decides"), difference.now);
  return text;
}

}  // namespace

Result<std::string> replay_file(const std::string& file) {
  // A directory can be opened, too.
  std::error_code error;
  if (std::filesystem::is_directory(file, error)) {
    return Status(Code::invalid_argument, cat(printable(file), " is a directory"));
  }
  std::ifstream in(file);
  if (!in) return Status::from_errno(cat("open ", printable(file)), errno);
  auto replayed = driver::replay(in);
  if (!replayed.ok()) return replayed.status().with_context(printable(file));
  if (replayed->difference) {
    return Status(Code::failed_precondition,
                  cat(printable(file), ": ", difference_text(*replayed)));
  }
  const char* const end = replayed->is_finished   ? "up to the end of the job"
                          : replayed->is_abridged ? "up to where events are left out"
                          : replayed->is_cut_off  ? "up to a line that is cut off"
                                                  : "and the job goes on";
  return cat("job ", printable(replayed->job_id), ": ", replayed->events, " events and ",
             replayed->actions, " decisions, ", end, "; all decisions agree\n");
}

}  // namespace hvd::cli
