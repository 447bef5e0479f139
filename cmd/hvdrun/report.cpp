#include "cmd/hvdrun/report.h"

#include <csignal>

#include "base/text.h"

namespace hvd::cli {
namespace {

// Every one of them, so that a person can repair all before the next attempt.
std::string hosts_report(const std::vector<driver::FailedHost>& hosts) {
  std::string text =
      cat("hvdrun: the job has failed: ", hosts.size(), " hosts cannot take part:\n");
  for (const auto& host : hosts) {
    const auto& [step, message, exit_code] = host.trouble;
    text += cat("    ", host.name, ": ", driver::name_of(step), ": ");
    for (const char c : message) {
      text += c;
      if (c == '\n') text += "        ";
    }
    text += '\n';
  }
  return text;
}

// What follows `before` in a line, up to the next blank or one of the ends; empty: it does not
// stand there.
std::string word_after(std::string_view line, std::string_view before) {
  const auto at = line.find(before);
  if (at == std::string_view::npos) return {};
  line.remove_prefix(at + before.size());
  return std::string(line.substr(0, line.find_first_of(": ")));
}

// The dynamic loaders of glibc and of musl end a program with 127 that lacks a library.
std::string missing_library(int exit_code, const std::string& host,
                            const std::vector<std::string>& tail) {
  if (exit_code != 127) return {};
  for (const auto& line : tail) {
    for (const std::string_view words :
         {"error while loading shared libraries: ", "Error loading shared library "}) {
      const std::string library = word_after(line, words);
      if (library.empty()) continue;
      return cat("hvdrun: the program needs the shared library ", library, ", which host ", host,
                 " does not have where its dynamic loader looks: install it there, or name its "
                 "folder in LD_LIBRARY_PATH (hvdrun hands its own on; --env LD_LIBRARY_PATH=DIR "
                 "sets another)\n");
    }
  }
  return {};
}

}  // namespace

std::string failure_report(const driver::Outcome& outcome) {
  if (outcome.exit_code == 0) return {};
  if (!outcome.failure) {
    const bool interrupted =
        outcome.exit_code == 128 + SIGINT || outcome.exit_code == 128 + SIGTERM ||
        outcome.exit_code == 128 + SIGHUP || outcome.exit_code == 128 + SIGQUIT;
    return cat("hvdrun: the job ", interrupted ? "was ended" : "has failed", ": ",
               outcome.reason.empty() ? "no reason is known" : outcome.reason, "\n");
  }
  const auto& [worker, cause, tail, hosts] = *outcome.failure;
  if (hosts.size() > 1) return hosts_report(hosts);
  // Without a slot it was a host that failed, and its reason is a sentence about that.
  if (worker.slot < 0) return cat("hvdrun: the job has failed: ", outcome.reason, "\n");
  const std::string who = worker.rank < 0 ? "a worker that was to join" : cat("rank ", worker.rank);
  std::string text =
      cat("hvdrun: the job has failed: ", who, " on host ", worker.host, " (slot ", worker.slot);
  if (worker.pid > 0) text += cat(", pid ", worker.pid);
  text += cat(") ", cause, "; the remaining workers were terminated.\n");
  text += missing_library(outcome.exit_code, worker.host, tail);
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
