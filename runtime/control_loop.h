// Negotiates: it drives this rank's Negotiator (negotiation/negotiator.h) with what the program
// asks for and what comes over the links of the control tree (tree_links.h). It sleeps until
// something happens: a request was enqueued, a frame arrived, a batch has ended, somebody is gone.
// An idle world sends nothing.
//
// It has a thread, and a thread of the program that waits for this world does the same work instead
// while it waits (duty.h), and runs what is little itself: what a request, its response and its
// result have to wait for is then one thread of each rank, not three.
//
// It alone decides that the world has failed: it sets the verdict, tells its neighbours, who tell
// theirs, closes the queue, and calls on_failure, which aborts the operations. Whose connection
// ends unexpectedly is gone, whether that is the parent or a child: so both parts of a tree whose
// inner node died hear of it, with its name.
//
// open() and start() once, in this order; stop() ends the thread. The other calls are safe from any
// thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "runtime/duty.h"
#include "runtime/executor.h"
#include "runtime/messages.h"
#include "runtime/negotiation/negotiator.h"
#include "runtime/poller.h"
#include "runtime/tensor_queue.h"
#include "runtime/trace/tracing.h"
#include "runtime/tree_links.h"
#include "runtime/tuning/tuning.h"
#include "runtime/verdict.h"
#include "runtime/world.h"

namespace hvd::runtime {

class ControlLoop {
 public:
  // Requests wait for others to come along; what nobody waits for may be asked about now and then.
  static constexpr std::chrono::microseconds kMostGathered{1'000};

  // `sets`: those that there are from the start; `own_core`: Duty.
  ControlLoop(const WorldSpec& spec, const ProcessSets& sets, TensorQueue& queue, Verdict& verdict,
              Executor& executor, trace::Recorder& recorder, trace::Tracing& tracing, bool own_core,
              std::function<void()> on_failure);
  ~ControlLoop() { stop(); }
  ControlLoop(const ControlLoop&) = delete;
  ControlLoop& operator=(const ControlLoop&) = delete;

  // Whoever has children in the tree listens; its address, as they need it, is address().
  Status open();
  const std::string& address() const { return links_.address(); }
  // Starts the thread; `addresses` are those of all ranks. Forming must end by `deadline`.
  Status start(std::vector<std::string> addresses, TimePoint deadline);
  // Neighbours on this host may write letters from now on.
  void share(std::shared_ptr<HostMail> mail);
  // Blocks until all connections that this rank needs are there, or the world has failed.
  Failure wait_formed();

  void wake() { poller_.wake(); }
  // Requests have been enqueued: they are looked at within a cycle, so that those that follow come
  // along, or as soon as anything happens.
  void gather() { poller_.wake_within(std::min(spec_.config.cycle_time, kMostGathered)); }
  // A batch has ended, on another thread than one that helps.
  void batch_ended() {
    if (wants_ends_) wake();
  }
  // For a thread of the program that waits for what callbacks of this world make true: returns when
  // done(), or at once if it is of no help here. Neither may throw.
  void help_until(const std::function<bool()>& done) noexcept;
  // Nobody helps from now on: a world that others want to end is not kept alive by those who wait.
  void dismiss_helpers() {
    helpers_dismissed_ = true;
    duty_.tell_helper();
  }
  // What a helper waits for may have come, by another thread.
  void tell_helper() { duty_.tell_helper(); }
  AskedCounts asked() const { return {asked_in_full_, asked_by_id_}; }
  // A data connection broke; if nobody turns out to be gone, this is what everybody is told.
  void suspect(const Status& why);
  // The world has failed.
  void fail(const Failure& why);
  // This rank wants no more; blocks until all do.
  Failure leave(TimePoint deadline);
  // Leaves at once if leave() has not ended well; joins the thread.
  void stop();

 private:
  std::string who(int rank) const;
  const std::string& host(int rank) const;
  Failure lost(int rank, const Status& how) const;

  void loop();
  TimePoint look_around();
  void take_in(const std::vector<Poller::Event>& events);
  void call_back(Duty::Turn& turn);
  void take_commands();
  void take_dump_request();
  void take_interrupt();
  void drain_queue(TimePoint now);
  void negotiate(TimePoint now);
  void tune(const std::vector<Response>& responses);
  void report(const StallInspector::Findings& stalls);
  TimePoint check_timers(TimePoint now);
  void check_forming();
  std::string missing_text() const;
  void handle(const TreeLinks::Received& received, TimePoint now);
  Status handle_frame(int rank, const Frame& frame, TimePoint now);
  void suspect_now(const Failure& why, TimePoint now);
  void enter_failure(const Failure& why);
  void set_formed();
  void set_left();

  const WorldSpec& spec_;
  TensorQueue& queue_;
  Verdict& verdict_;
  Executor& executor_;
  trace::Recorder& recorder_;
  trace::Tracing& tracing_;
  std::function<void()> on_failure_;
  const std::shared_ptr<const ControlTree> tree_;

  Poller poller_;
  Duty duty_;
  std::thread thread_;

  // Of whoever has the turn.
  TreeLinks links_;
  Negotiator negotiator_;
  std::optional<Tuning> tuning_;   // on rank 0, if it is wanted
  std::set<int> formed_children_;  // whose whole subtree is connected
  bool subtree_formed_ = false;
  TimePoint forming_until_ = kNever;
  TimePoint suspicion_until_ = kNever;
  Failure suspicion_;
  bool leave_sent_ = false;
  bool stops_ = false;                            // the command has been obeyed
  bool is_helped_ = false;                        // the turn is a helper's
  std::vector<std::function<void()>> callbacks_;  // to be called when the turn is over

  // Between threads.
  std::atomic<bool> wants_ends_ = false;  // what is ready waits for a batch to end
  std::atomic<bool> helpers_dismissed_ = false;
  std::atomic<std::uint64_t> asked_in_full_ = 0;
  std::atomic<std::uint64_t> asked_by_id_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Failure> failures_;   // commands of fail()
  std::vector<Status> suspicions_;  // commands of suspect()
  std::shared_ptr<HostMail> mail_;  // command of share()
  bool leaving_ = false;            // command of leave()
  bool stopping_ = false;           // command of stop()
  bool formed_ = false;
  bool left_ = false;
};

}  // namespace hvd::runtime
