// All output of a running job: the workers' lines with their prefixes, the files of
// --output-filename, warnings and progress. It is the driver's Observer; its methods run on the
// driver's thread and, but for on_pause(), never wait, since streams and files are written by
// threads of their own (stream_writer.h, rank_files.h), which hold the workers' credit meanwhile.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "cmd/hvdrun/line_prefixer.h"
#include "cmd/hvdrun/rank_files.h"
#include "cmd/hvdrun/stream_writer.h"
#include "cmd/hvdrun/waiting_report.h"
#include "driver/driver.h"

namespace hvd::cli {

// hvdrun's stdout and stderr. If both are the same terminal, pipe or file they share one writer, so
// that lines keep their order and never mix.
class Console {
 public:
  // `on_failure` is called when standard output cannot be written any more. What it was meant to
  // get is lost from then on; unless its reader is gone, standard error says so.
  Console(int out, int error, std::chrono::milliseconds stall_timeout,
          std::function<void(const Status&, WriteFailure)> on_failure);

  StreamWriter& out() { return *out_; }
  StreamWriter& error() { return same_ ? *out_ : *error_; }
  bool out_is_terminal() const { return out_is_terminal_; }
  bool error_is_terminal() const { return error_is_terminal_; }
  // Whether standard error is a terminal on which a line can be drawn again and again, and this
  // process is in its foreground.
  bool can_show_live_line() const;
  // Waits until all is written; false at the deadline, or when the reader has stalled.
  bool drain(TimePoint deadline);
  // The last drain. If it fails, standard error tells how much of standard output nobody has read.
  void finish(TimePoint deadline);

 private:
  int error_fd_;
  bool same_ = false;
  bool out_is_terminal_ = false;
  bool out_may_reach_terminal_ = false;
  bool error_is_terminal_ = false;
  std::unique_ptr<StreamWriter> error_;  // before out_, whose notices it shows
  std::unique_ptr<StreamWriter> out_;
};

// Whether tags may be coloured: on a terminal that supports it, unless NO_COLOR is set.
bool colours_wanted(bool is_terminal);

class JobOutput : public driver::Observer {
 public:
  // `files` may be null. Both must outlive this. With `elastic` ranks may change: a line has the
  // rank that its worker has at the end of the line, and files are named after workers.
  // `ends_by_itself` is true once hvdrun ends the job because its own output is broken; the notice
  // of an interruption is then suppressed.
  JobOutput(Console& console, RankFiles* files, PrefixStyle style, bool verbose,
            bool elastic = false, std::function<bool()> ends_by_itself = nullptr);

  // Shows only the workers of these local ranks, and those that have no rank yet; files get the
  // output of all. Empty: shows all.
  void show_only(std::set<int> local_ranks) { shown_local_ranks_ = std::move(local_ranks); }
  // Called when the ranks are known, and their files cannot be made.
  void on_files_not_made(std::function<void(const Status& why)> callback) {
    on_files_not_made_ = std::move(callback);
  }

  void on_plan(const WorldDocument& world) override;
  void on_world(const WorldDocument& world, std::string_view why) override;
  void on_warning(std::string_view text) override;
  void on_notice(std::string_view text) override;
  void on_waiting(const driver::Waiting& waiting) override;
  void on_waiting_over() override;
  void on_progress(std::string_view text) override;
  void on_started(const driver::WorkerView& worker) override;
  void on_output(const driver::WorkerView& worker, driver::Stream stream, std::string bytes,
                 std::function<void()> consumed) override;
  void on_output_closed(const driver::WorkerView& worker, driver::Stream stream) override;
  void on_exited(const driver::WorkerView& worker, std::string_view how) override;
  void on_pause() override;

  // Lines of hvdrun itself, each with its line feed, that are to be shown as they are.
  void show(std::string_view lines, bool is_error);

  // The unfinished last lines of streams that were never closed.
  void finish();

  // Whether the last line that this worker wrote to stderr was shown, and so few lines after it
  // that a person still sees it.
  bool stderr_was_just_shown(std::uint64_t incarnation) const;

 private:
  using Key = std::pair<std::uint64_t, driver::Stream>;  // incarnation
  struct Prefixer {
    int rank;  // in its tag
    LinePrefixer lines;
  };

  bool is_shown(const driver::WorkerView& worker) const;
  LinePrefixer& prefixer(const driver::WorkerView& worker, driver::Stream stream);
  StreamWriter& writer(driver::Stream stream);
  void write_lines(const driver::WorkerView& worker, driver::Stream stream, std::string lines,
                   Credit credit);
  void say(std::string_view text);
  void say_places(const WorldDocument& world);
  void warn_if_all_are_hidden(const WorldDocument& world);

  Console& console_;
  RankFiles* files_;
  PrefixStyle style_;
  bool verbose_;
  bool elastic_;
  std::function<bool()> ends_by_itself_;
  std::function<void(const Status& why)> on_files_not_made_;
  std::set<int> shown_local_ranks_;
  bool has_warned_ = false;  // that none of them is in the world
  std::map<Key, Prefixer> prefixers_;
  WaitingReport waiting_;
  driver::Waiting::For waits_for_{};
  std::uint64_t lines_ = 0;  // of all output that was shown
  std::map<std::uint64_t, std::uint64_t>
      stderr_ended_;  // by incarnation: lines_ after its last line
};

}  // namespace hvd::cli
