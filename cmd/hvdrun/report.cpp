#include "cmd/hvdrun/report.h"

#include <csignal>

#include "base/text.h"

namespace hvd::cli {

std::string failure_report(const driver::Outcome& outcome) {
  if (outcome.exit_code == 0) return {};
  if (!outcome.failure) {
    const bool interrupted = outcome.exit_code == 128 + SIGINT ||
                             outcome.exit_code == 128 + SIGTERM ||
                             outcome.exit_code == 128 + SIGHUP;
    return cat("hvdrun: the job ", interrupted ? "was ended" : "has failed", ": ",
               outcome.reason.empty() ? "no reason is known" : outcome.reason, "\n");
  }
  const auto& [worker, cause, tail] = *outcome.failure;
  // Without a rank it was a host that failed, and its reason is a sentence about that.
  if (worker.rank < 0) return cat("hvdrun: the job has failed: ", outcome.reason, "\n");
  std::string text = cat("hvdrun: the job has failed: rank ", worker.rank, " on host ", worker.host,
                         " (slot ", worker.slot);
  if (worker.pid > 0) text += cat(", pid ", worker.pid);
  text += cat(") ", cause, "; the remaining workers were terminated.\n");
  if (tail.empty()) {
    text += "hvdrun: it wrote nothing to stderr.\n";
  } else {
    text += cat("hvdrun: the last ", tail.size() == 1 ? "line" : cat(tail.size(), " lines"),
                " of its stderr:\n");
    for (const auto& line : tail) text += cat("    ", line, "\n");
  }
  return text;
}

}  // namespace hvd::cli
