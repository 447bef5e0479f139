// A rank's part in the timeline and the flight recorder. World owns it. Its first half is safe from
// any thread; the second belongs to the control loop, which calls work() each time it runs, and
// passes on the frames for which is_ours() holds.
//
// Timeline: rank 0 opens the file, and the command to start is sent down the control tree between
// the responses, so that all ranks record the same batches. A few times a second each rank sends
// the batches that have ended, with its clock offset to its parent (clock_offset.h), to which each
// rank on the way up adds its own. These frames wait while the link is busy; whole tensors beyond
// kMaxHeld are dropped and counted. The command to stop carries the number of the last batch; each
// rank waits until it has run that one, for at most kReportTimeout, and then sends its final
// events.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "base/background.h"
#include "base/clock.h"
#include "base/frame.h"
#include "runtime/control/tree_links.h"
#include "runtime/core/failure.h"
#include "runtime/trace/clock_offset.h"
#include "runtime/trace/frames.h"
#include "runtime/trace/recorder.h"
#include "runtime/trace/timeline_writer.h"

namespace hvd::runtime::trace {

class Tracing {
 public:
  static constexpr std::chrono::milliseconds kSendEvery{200};
  static constexpr std::chrono::milliseconds kRetry{20};  // while a link is busy
  // For batches that run when recording stops.
  static constexpr std::chrono::seconds kReportTimeout{5};
  // For a report of the flight recorder to be written: the control loop waits so long.
  static constexpr std::chrono::seconds kFilePatience{2};
  static constexpr std::size_t kBusy = std::size_t{256} << 10;    // unsent bytes of a link
  static constexpr std::size_t kMaxHeld = std::size_t{32} << 20;  // of frames that wait

  // `wake` makes the control loop call work().
  Tracing(const WorldSpec& spec, Recorder& recorder, std::function<void()> wake)
      : spec_(spec),
        recorder_(recorder),
        wake_(std::move(wake)),
        clock_(clock_identity()),
        files_(kFilePatience) {}
  Tracing(const Tracing&) = delete;
  Tracing& operator=(const Tracing&) = delete;

  // What the settings ask for, before the world forms: files that cannot be written are reported
  // before other ranks start to wait for this one. In a world that follows another one none of them
  // is an error.
  Status open();
  // Rank 0 only. failed_precondition if a timeline is already being recorded, or if none is.
  // `under_way`: no error but a warning if the file cannot be written (timeline_writer.h).
  Status start_timeline(const std::string& path, bool mark_cycles, bool under_way = false);
  // Blocks until everything that the ranks have run is in the file; deadline_exceeded: some ranks
  // did not report.
  Status stop_timeline(TimePoint deadline);
  // The world has failed or has been left: a timeline that is being recorded ends.
  void close();
  // Writes this rank's flight recorder.
  void request_dump(std::string reason);

  // --- the control loop's thread ---

  // Whether the frame belongs to the timeline or the flight recorder.
  static bool is_ours(const Frame& frame);
  Status handle(int from, const Frame& frame, TreeLinks& links);
  // Executes what other threads have asked for; before the next responses are decided. `applied`:
  // the number of the last response.
  void take_commands(std::uint64_t applied, TreeLinks& links, TimePoint now);
  // Sends the events that are due; after responses have been handed to the executor.
  void work(TreeLinks& links, TimePoint now);
  TimePoint next_work() const { return next_work_; }
  // Rank 0 has decided `count` batches, the last of them with the number `applied`.
  void decided(std::uint64_t applied, std::size_t count, TimePoint now);
  // This rank makes no more calls: sends its final events.
  void leaving(TreeLinks& links, TimePoint now);
  // Some tensor has waited too long: all ranks write their flight recorders.
  void stalled(TreeLinks& links);
  // The world has failed: writes the flight recorder and sends the final events.
  void failed(const Failure& why, TreeLinks& links);

 private:
  enum class State { off, on, stopping };
  void begin(const Mark& mark, TreeLinks& links);
  void call_end(const Mark& mark, TreeLinks& links, TimePoint now);
  void collect(TreeLinks& links, bool final);
  void hold(Events events);
  void send_held(TreeLinks& links, bool in_any_case);
  void send_final_events(TreeLinks& links);
  void take_events(Events events, TreeLinks& links);
  void dump(const std::string& reason, bool failed);
  // Waits for the work, unless it hangs.
  Status on_files(std::function<Status()> work);
  bool is_root() const { return spec_.rank == 0; }

  const WorldSpec& spec_;
  Recorder& recorder_;
  std::function<void()> wake_;

  // State of the control loop.
  State state_ = State::off;
  std::uint64_t session_ = 0;
  ClockOffset clock_;
  std::deque<Events> held_;
  std::size_t held_bytes_ = 0;
  std::uint32_t dropped_ = 0;  // tensors of this rank, to be reported with its next events
  TimePoint send_at_ = kNever;
  TimePoint stop_at_ = kNever;
  TimePoint next_work_ = kNever;
  std::set<int> unreported_;  // rank 0: ranks that have not sent their final events
  bool is_leaving_ = false;
  bool over_ = false;  // the world has failed

  // Between threads.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<TimelineWriter> writer_;  // rank 0
  bool is_opening_ = false;
  bool mark_cycles_ = false;
  bool start_wanted_ = false;
  bool stop_wanted_ = false;
  bool ended_ = false;  // all ranks have sent their final events
  bool was_left_ = false;
  std::vector<std::string> dumps_wanted_;

  Background files_;  // of the flight recorder
};

}  // namespace hvd::runtime::trace
