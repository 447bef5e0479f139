#include "cmd/hvdrun/job_output.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <set>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/printable.h"
#include "base/text.h"

namespace hvd::cli {
namespace {

// For the reader of hvdrun's output to take what was said before a pause.
constexpr std::chrono::seconds kPauseTimeout{1};

// About a screen.
constexpr std::uint64_t kLinesInSight = 40;

bool same_file(int a, int b) {
  struct stat of_a {};
  struct stat of_b {};
  return ::fstat(a, &of_a) == 0 && ::fstat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
         of_a.st_ino == of_b.st_ino;
}

// A reader of a pipe or a socket may show what it reads, as tee does.
bool is_file_or_device(int fd) {
  struct stat about {};
  return ::fstat(fd, &about) == 0 && (S_ISREG(about.st_mode) || S_ISCHR(about.st_mode));
}

// It can do more than write one line below the other.
bool terminal_is_capable() {
  const char* const terminal = std::getenv("TERM");
  return terminal != nullptr && *terminal != '\0' && std::string_view(terminal) != "dumb";
}

std::string_view name_of(driver::Stream stream) {
  return stream == driver::Stream::standard_output ? "stdout" : "stderr";
}

std::string worker_name(const driver::WorkerView& worker) {
  return cat(worker.host, "#", worker.slot);
}

std::string who(const driver::WorkerView& worker) {
  return worker.rank < 0 ? cat("worker ", worker_name(worker))
                         : cat("rank ", worker.rank, " on ", worker_name(worker));
}

}  // namespace

Console::Console(int out, int error, std::chrono::milliseconds stall_timeout,
                 std::function<void(const Status&, WriteFailure)> on_failure)
    : error_fd_(error),
      same_(same_file(out, error)),
      out_is_terminal_(::isatty(out) == 1),
      out_may_reach_terminal_(out_is_terminal_ || !is_file_or_device(out)),
      error_is_terminal_(::isatty(error) == 1) {
  const auto notice = [stall_timeout](std::string_view stream, std::uint64_t bytes) {
    return cat("hvdrun: ", with_thousands(bytes), " bytes of output were dropped: nobody read ",
               stream, " for ", seconds_text(stall_timeout), "\n");
  };

  if (!same_) {
    StreamWriterOptions options;
    options.name = "standard error";
    options.stall_timeout = stall_timeout;
    options.on_resumed = [this, notice](std::uint64_t bytes) {
      error_->write(notice("standard error", bytes));
    };
    error_ = std::make_unique<StreamWriter>(error, std::move(options));
  }

  StreamWriterOptions options;
  options.name = "standard output";
  options.stall_timeout = stall_timeout;
  options.on_failure = [this, on_failure = std::move(on_failure)](const Status& why,
                                                                  WriteFailure kind) {
    if (kind == WriteFailure::other && !same_) {
      this->error().write(
          cat("hvdrun: warning: the job goes on, and its output is lost from here on: ",
              printable_lines(why.message()), "\n"));
    }
    if (on_failure) on_failure(why, kind);
  };
  options.on_resumed = [this, notice](std::uint64_t bytes) {
    this->error().write(notice("standard output", bytes));
  };
  out_ = std::make_unique<StreamWriter>(out, std::move(options));
}

bool Console::drain(TimePoint deadline) {
  // Standard error comes last, since notices about standard output are written to it.
  const bool out_done = out().drain(deadline);
  return error().drain(deadline) && out_done;
}

void Console::finish(TimePoint deadline) {
  if (!out().drain(deadline) && !same_) {
    error().write(cat("hvdrun: the last ", with_thousands(out().unread()),
                      " bytes of output are lost: nobody read standard output\n"));
  }
  // Standard output may have taken all the time.
  error().drain(std::max(deadline, Clock::now() + kPauseTimeout));
}

bool Console::can_show_live_line() const {
  if (!error_is_terminal_ || (!same_ && out_may_reach_terminal_)) return false;
  return terminal_is_capable() && ::tcgetpgrp(error_fd_) == ::getpgrp();
}

bool colours_wanted(bool is_terminal) {
  const char* const refused = std::getenv("NO_COLOR");
  return is_terminal && (refused == nullptr || *refused == '\0') && terminal_is_capable();
}

JobOutput::JobOutput(Console& console, RankFiles* files, PrefixStyle style, bool verbose,
                     bool elastic, std::function<bool()> ends_by_itself)
    : console_(console),
      files_(files),
      style_(style),
      verbose_(verbose),
      elastic_(elastic),
      ends_by_itself_(std::move(ends_by_itself)) {}

StreamWriter& JobOutput::writer(driver::Stream stream) {
  return stream == driver::Stream::standard_output ? console_.out() : console_.error();
}

bool JobOutput::is_shown(const driver::WorkerView& worker) const {
  return shown_local_ranks_.empty() || worker.local_rank < 0 ||
         shown_local_ranks_.contains(worker.local_rank);
}

LinePrefixer& JobOutput::prefixer(const driver::WorkerView& worker, driver::Stream stream) {
  const Key key{worker.incarnation, stream};
  const auto found = prefixers_.find(key);
  if (found != prefixers_.end() && found->second.rank == worker.rank) return found->second.lines;
  PrefixStyle style = style_;
  style.colour =
      colours_wanted(stream == driver::Stream::standard_output ? console_.out_is_terminal()
                                                               : console_.error_is_terminal());
  std::string tag = worker.rank < 0 ? joiner_tag(worker_name(worker), name_of(stream), style)
                                    : rank_tag(worker.rank, name_of(stream), style);
  if (found == prefixers_.end()) {
    return prefixers_.emplace(key, Prefixer{worker.rank, LinePrefixer(std::move(tag), style)})
        .first->second.lines;
  }
  found->second.rank = worker.rank;
  found->second.lines.set_tag(std::move(tag));
  return found->second.lines;
}

void JobOutput::say(std::string_view text) {
  show(cat("hvdrun: ", printable_lines(text), "\n"), false);
}

void JobOutput::show(std::string_view lines, bool is_error) {
  PrefixStyle style = style_;
  style.colour = colours_wanted(console_.error_is_terminal());
  console_.error().write(own_lines(lines, style, is_error));
}

void JobOutput::on_plan(const WorldDocument& world) {
  warn_if_all_are_hidden(world);
  if (files_ != nullptr) {
    const Status made = files_->set_size(static_cast<int>(world.members.size()));
    if (!made.ok() && on_files_not_made_) on_files_not_made_(made);
  }
  if (verbose_) say_places(world);
}

void JobOutput::on_world(const WorldDocument& world, std::string_view why) {
  std::set<std::string_view> hosts;
  for (const auto& member : world.members) hosts.insert(member.host);
  say(cat("generation ", world.generation, ": ", world.members.size(),
          world.members.size() == 1 ? " worker on " : " workers on ", hosts.size(),
          hosts.size() == 1 ? " host" : " hosts", why.empty() ? "" : cat(" (", why, ")")));
  warn_if_all_are_hidden(world);
  if (verbose_) say_places(world);
}

void JobOutput::warn_if_all_are_hidden(const WorldDocument& world) {
  if (has_warned_ || shown_local_ranks_.empty()) return;
  int most = 0;
  for (const auto& member : world.members) {
    if (shown_local_ranks_.contains(member.local_rank)) return;
    most = std::max(most, member.local_rank);
  }
  has_warned_ = true;
  on_warning(
      cat("--local-ranks-filter shows the output of no worker: the highest local rank is ", most));
}

void JobOutput::say_places(const WorldDocument& world) {
  for (const auto& member : world.members) {
    say(member.ranked());
  }
}

void JobOutput::on_warning(std::string_view text) { say(cat("warning: ", text)); }

void JobOutput::on_notice(std::string_view text) {
  if (!ends_by_itself_ || !ends_by_itself_()) say(text);
}

void JobOutput::on_waiting(const driver::Waiting& waiting) {
  if (ends_by_itself_ && ends_by_itself_()) return;
  const TimePoint now = Clock::now();
  if (std::exchange(waits_for_, waiting.what) != waiting.what) waiting_.end();
  const auto text = [&] {
    const auto waited = std::chrono::floor<std::chrono::seconds>(waiting_.waited(now));
    const std::string since = waited.count() < 1 ? "" : cat("; ", waited.count(), " s so far");
    return cat("waiting for ", waiting.text(), since);
  };
  if (console_.can_show_live_line()) {
    if (waiting_.is_live_due(now)) {
      console_.error().set_live_line(cat("hvdrun: ", printable(text())));
    }
    return;
  }
  console_.error().set_live_line({});
  if ((waiting.matters || verbose_) && waiting_.is_line_due(now)) say(text());
}

void JobOutput::on_waiting_over() {
  if (!waiting_.is_waiting()) return;
  waiting_.end();
  console_.error().set_live_line({});
}

void JobOutput::on_progress(std::string_view text) {
  if (verbose_) say(text);
}

void JobOutput::on_started(const driver::WorkerView& worker) {
  if (verbose_) say(cat(who(worker), " runs as pid ", worker.pid));
}

void JobOutput::on_output(const driver::WorkerView& worker, driver::Stream stream,
                          std::string bytes, std::function<void()> consumed) {
  const Credit credit = make_credit(std::move(consumed));
  std::string shown = is_shown(worker) ? prefixer(worker, stream).push(bytes) : std::string();
  if (files_ != nullptr) {
    const bool error = stream == driver::Stream::standard_error;
    const std::string folder = elastic_ ? worker_name(worker) : std::string();
    elastic_ ? files_->write(folder, error, std::move(bytes), credit)
             : files_->write(worker.rank, error, std::move(bytes), credit);
  }
  write_lines(worker, stream, std::move(shown), credit);
}

void JobOutput::write_lines(const driver::WorkerView& worker, driver::Stream stream,
                            std::string lines, Credit credit) {
  lines_ += static_cast<std::uint64_t>(std::count(lines.begin(), lines.end(), '\n'));
  if (stream == driver::Stream::standard_error && !lines.empty()) {
    stderr_ended_[worker.incarnation] = lines_;
  }
  writer(stream).write(std::move(lines), std::move(credit));
}

bool JobOutput::stderr_was_just_shown(std::uint64_t incarnation) const {
  const auto ended = stderr_ended_.find(incarnation);
  return ended != stderr_ended_.end() && lines_ - ended->second <= kLinesInSight;
}

void JobOutput::on_output_closed(const driver::WorkerView& worker, driver::Stream stream) {
  const auto found = prefixers_.find({worker.incarnation, stream});
  if (found == prefixers_.end()) return;
  write_lines(worker, stream, prefixer(worker, stream).finish(), {});
  prefixers_.erase(found);
}

void JobOutput::on_exited(const driver::WorkerView& worker, std::string_view how) {
  if (verbose_) say(cat(who(worker), " ", how));
}

// A reader that stops together with this process takes nothing any more.
void JobOutput::on_pause() {
  console_.error().set_live_line({});
  console_.drain(Clock::now() + kPauseTimeout);
}

void JobOutput::finish() {
  on_waiting_over();
  for (auto& [key, prefixer] : prefixers_) writer(key.second).write(prefixer.lines.finish());
  prefixers_.clear();
}

}  // namespace hvd::cli
