// The command of --notice-command, which tells that this host is about to be taken away. It runs
// under a reaper of its own (reaper.h), as a worker does: in its own session, frozen and killed
// with all that it has started where a worker would be. Owned by the supervisor, on its only
// thread.
//
//     running --exit code 0--> the notice; it never runs again
//        ^`--every other end--> resting --kPause--.
//        `----------------------------------------'
//
// The last line of its standard output is the time that is left, if it is a number of seconds. A
// command may wait for the notice, or look once and end with 1. The first end of another kind, or
// the first one with something on standard error, is told to the driver.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/status.h"
#include "cmd/hvd-agent/event_loop.h"
#include "cmd/hvd-agent/reaper.h"
#include "cmd/hvd-agent/worker.h"

namespace hvd::agent {

// The last line of what a notice command has printed; nothing: it is no number of seconds. No time
// is left where the number is negative.
std::optional<std::chrono::milliseconds> time_left(std::string_view printed);

class NoticeCommand {
 public:
  static constexpr std::chrono::seconds kPause{5};
  using Noticed = std::function<void(std::optional<std::chrono::milliseconds> left)>;
  using Problem = std::function<void(std::string message)>;

  NoticeCommand(const WorkerContext& context, Noticed noticed, Problem problem)
      : context_(context), noticed_(std::move(noticed)), problem_(std::move(problem)) {}

  // Only the first call has an effect.
  void begin(std::string command, std::vector<std::string> environment,
             std::string working_directory);
  // Kills it; it never runs again.
  void stop();

  // As those of a worker.
  void check_lease() const;
  TimePoint deadline() const { return run_at_; }
  void on_time(TimePoint now);
  // Nothing of it is left.
  bool is_over() const { return !reaper_; }
  pid_t reaper_pid() const { return reaper_pid_; }
  void reaper_waited_for() { reaper_pid_ = 0; }

 private:
  // The end of what it prints on one of its two streams.
  struct Stream {
    UniqueFd pipe;
    Watch watch;
    std::string text;
  };

  Status run();
  Status open(Stream& stream, UniqueFd& write_end);
  static void read(Stream& stream, int times);
  void on_reaper_events();
  void on_report(const ReaperReport& report);
  void exited(int wait_status);
  void complain(const std::string& what);
  void order(ReaperOrder::Kind kind) const;

  const WorkerContext& context_;
  Noticed noticed_;
  Problem problem_;
  std::vector<std::string> command_;  // empty: there is none
  std::vector<std::string> environment_;
  std::string working_directory_;
  pid_t reaper_pid_ = 0;
  UniqueFd reaper_;
  Watch reaper_watch_;
  Stream output_;
  Stream errors_;
  TimePoint run_at_ = kNever;
  bool runs_ = false;  // its end has not been reported yet
  bool is_finished_ = false;
  bool has_complained_ = false;
};

}  // namespace hvd::agent
