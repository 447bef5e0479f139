#include "cmd/hvdrun/report.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>

#include "base/clock.h"
#include "base/printable.h"
#include "base/text.h"
#include "base/versions.h"
#include "driver/job/job_io.h"

namespace hvd::cli {
namespace {

// All failed hosts at once, so that a person can repair all of them before the next attempt.
std::string hosts_report(const std::vector<driver::FailedHost>& hosts) {
  std::string text =
      cat("hvdrun: the job has failed: ", hosts.size(), " hosts cannot take part:\n");
  for (const auto& host : hosts) {
    const auto& [step, message, exit_code] = host.error;
    text += cat("    ", host.name, ": ", driver::name_of(step), ": ");
    for (const char c : printable_lines(message)) {
      text += c;
      if (c == '\n') text += "        ";
    }
    text += '\n';
  }
  return text;
}

// The word behind `before` in a line, up to a blank or a colon; empty if `before` is not in it.
std::string word_after(std::string_view line, std::string_view before) {
  const auto at = line.find(before);
  if (at == std::string_view::npos) return {};
  line.remove_prefix(at + before.size());
  return std::string(line.substr(0, line.find_first_of(": ")));
}

// The dynamic loaders of glibc and musl exit with 127 if a shared library is missing.
std::string missing_library(int exit_code, const std::string& host,
                            const std::vector<std::string>& tail) {
  if (exit_code != 127) return {};
  for (const auto& line : tail) {
    for (const std::string_view message :
         {"error while loading shared libraries: ", "Error loading shared library "}) {
      const std::string library = word_after(line, message);
      if (library.empty()) continue;
      return cat("hvdrun: the program needs the shared library ", library, ", which host ", host,
                 " does not have where its dynamic loader looks: install it there, or name its "
                 "folder in LD_LIBRARY_PATH (hvdrun hands its own on; --env LD_LIBRARY_PATH=DIR "
                 "sets another)\n");
    }
  }
  return {};
}

// An elastic program of Horovod has no rank at its start; its Gloo prints this and aborts before it
// contacts the rendezvous.
bool is_elastic_horovod(const std::string& line) {
  return line.find("rank >= 0. -1 vs 0") != std::string::npos;
}

// A libhvd from before its link to the agent had a version says this of the newer welcome.
bool is_older_hvd(const std::string& line) {
  return line.find("the agent's welcome: a frame of kind ") != std::string::npos;
}

// breakpoint() and input() of Python read the standard input.
bool has_read_standard_input(const std::string& line) {
  return line.starts_with("bdb.BdbQuit") || line == "EOFError: EOF when reading a line";
}

}  // namespace

static std::string report_of(const driver::Outcome& outcome, bool stderr_was_shown) {
  if (!outcome.failure) {
    const bool interrupted =
        outcome.exit_code == 128 + SIGINT || outcome.exit_code == 128 + SIGTERM ||
        outcome.exit_code == 128 + SIGHUP || outcome.exit_code == 128 + SIGQUIT;
    return cat("hvdrun: the job ", interrupted ? "was ended" : "has failed", ": ",
               outcome.reason.empty() ? "unknown reason" : printable_lines(outcome.reason), "\n");
  }

  const auto& [worker, cause, tail, hosts] = *outcome.failure;
  if (hosts.size() > 1) return hosts_report(hosts);
  // Without a slot, a host has failed; the reason is a whole sentence.
  if (worker.slot < 0)
    return cat("hvdrun: the job has failed: ", printable_lines(outcome.reason), "\n");

  const std::string who = worker.rank < 0 ? "worker " : cat("rank ", worker.rank, " on ");
  std::string text = cat("hvdrun: the job has failed: ", who, worker.host, "#", worker.slot);
  if (worker.pid > 0) text += cat(" (pid ", worker.pid, ")");
  text += cat(" ", printable_lines(cause), "; the remaining workers were terminated.\n");

  text += printable_lines(missing_library(outcome.exit_code, worker.host, tail));
  if (tail.empty()) {
    text += "hvdrun: it wrote nothing to stderr.\n";
  } else if (!stderr_was_shown) {
    text += cat("hvdrun: the last ", tail.size() == 1 ? "line" : cat(tail.size(), " lines"),
                " of its stderr:\n");
    for (const auto& line : tail) text += cat("    ", printable(line), "\n");
  }

  if (std::any_of(tail.begin(), tail.end(), is_elastic_horovod)) {
    text +=
        "hvdrun: this seems to be an elastic program of Horovod, which is not supported; "
        "--legacy-clients serves programs of Horovod in jobs whose world does not change.\n";
  }
  if (std::any_of(tail.begin(), tail.end(), has_read_standard_input)) {
    text +=
        "hvdrun: the standard input of a worker is /dev/null, so breakpoint() and input() find its "
        "end at once. Started without hvdrun the program is a world of one and has your terminal; "
        "a debugger that listens at a port (debugpy, remote-pdb) works in each worker.\n";
  }
  if (std::any_of(tail.begin(), tail.end(), is_older_hvd)) {
    text += cat("hvdrun: the program on host ", worker.host,
                " is linked with an older hvd than this hvdrun (build ", build_id(),
                "): build it with the hvd of this hvdrun, or start it by the hvdrun of its own "
                "hvd.\n");
  }
  return text;
}

static std::string suspension_report(const driver::Outcome& outcome,
                                     const std::string& state_file) {
  return cat("hvdrun: the job was ", printable_lines(outcome.reason), "; ",
             state_file.empty() ? "its state is where the program keeps it (--state-file keeps it)"
                                : cat("its state is in ", printable(state_file),
                                      ", and the same command goes on from there"),
             "\n");
}

// How often the world of a job changed, and how many workers were lost and joined.
static std::string worlds_text(const driver::JobSummary& summary, bool elastic) {
  if (summary.worlds == 0) return "; no worker was started";
  if (!elastic) {
    const std::string lost = summary.lost == 0 ? "" : cat(", ", summary.lost, " of them lost");
    return cat(" with ", driver::counted(summary.size, "worker"), lost);
  }
  std::string text =
      cat(": ", driver::counted(summary.worlds, "world"), ", ",
          driver::counted(summary.lost, "worker"), " lost, ", summary.joined, " joined");
  if (summary.redone > 0) text += cat(", ", driver::counted(summary.redone, "step"), " redone");
  if (summary.outside_recovery) {
    text += cat(", ", std::floor(*summary.outside_recovery * 1000) / 10,
                " % of the time outside recovery");
    const auto held_up = std::chrono::duration<double>(summary.held_up).count();
    if (held_up >= 1) text += cat(", not counting ", duration_text(held_up), " of hold-ups");
  }
  return text;
}

std::string end_line(const driver::Outcome& outcome, bool elastic, const KeptOutput& kept) {
  if (!outcome.summary) return {};
  const driver::JobSummary& summary = *outcome.summary;
  const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(summary.time);
  std::string text =
      cat("hvdrun: the job took ",
          time < std::chrono::minutes(1) ? seconds_text(time)
                                         : duration_text(static_cast<double>(time.count()) / 1000),
          worlds_text(summary, elastic));
  if (!kept.directory.empty()) text += cat("; output in ", printable(kept.directory));
  if (!kept.journal.empty()) text += cat("; events in ", printable(kept.journal));
  return text + "\n";
}

std::string failure_report(const driver::Outcome& outcome, const std::string& state_file,
                           bool stderr_was_shown) {
  if (outcome.exit_code == 0) return {};
  if (outcome.suspended) return suspension_report(outcome, state_file);
  std::string text;
  if (!outcome.lost_state.empty()) {
    text = cat("hvdrun: ", printable(outcome.lost_state),
               "\nhvdrun: this caused the following failure.\n");
  }
  text += report_of(outcome, stderr_was_shown);
  if (!outcome.last_activities.empty()) text += cat("hvdrun: ", outcome.last_activities);
  return text;
}

}  // namespace hvd::cli
