#include "cmd/hvdrun/report.h"

#include "base/text.h"

namespace hvd::cli {

std::string failure_report(const driver::Outcome& outcome) {
  if (outcome.exit_code == 0) return {};
  std::string text;
  if (!outcome.failure) {
    return cat("hvdrun: the job has failed: ",
               outcome.reason.empty() ? "no reason is known" : outcome.reason, "\n");
  }
  const auto& [worker, cause, tail] = *outcome.failure;
  text = cat("hvdrun: the job has failed: process ", worker.rank, " (rank ", worker.rank,
             " on host ", worker.host, ", slot ", worker.slot);
  if (worker.pid > 0) text += cat(", pid ", worker.pid);
  text += cat(") ", cause, ". The remaining workers were terminated.\n");
  if (!outcome.reason.empty()) text += cat("hvdrun: ", outcome.reason, "\n");
  if (tail.empty()) {
    text += "hvdrun: it wrote nothing to stderr\n";
  } else {
    text += cat("hvdrun: the last ", tail.size() == 1 ? "line" : cat(tail.size(), " lines"),
                " of its stderr:\n");
    for (const auto& line : tail) text += cat("    ", line, "\n");
  }
  return text;
}

}  // namespace hvd::cli
