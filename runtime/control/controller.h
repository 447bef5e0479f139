// One rank's part in the control plane: it sends this rank's requests to its neighbours in the
// control tree, hands the responses to the executor, and forms, leaves or fails the world. The
// Negotiator (negotiation/negotiator.h) decides what to run; the links (tree_links.h) carry the
// messages.
//
// Only this class decides that the world has failed: it sets the verdict, tells its neighbours,
// which tell theirs, closes the queue, and calls on_failure, which aborts the operations. A
// neighbour whose connection ends unexpectedly counts as lost, parent and child alike: so both
// parts of a tree whose inner node died learn of it, with its name.
//
// It has no thread: the control loop owns it (control_loop.h). open() and connect() once, in this
// order, then the second part, under the lock of the progress engine; the last part is safe from
// any thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "runtime/control/executor.h"
#include "runtime/control/tracing.h"
#include "runtime/control/tree_links.h"
#include "runtime/core/verdict.h"
#include "runtime/core/world_spec.h"
#include "runtime/negotiation/messages.h"
#include "runtime/negotiation/negotiator.h"
#include "runtime/negotiation/tensor_queue.h"
#include "runtime/net/poller.h"
#include "runtime/tuning/tuning.h"

namespace hvd::runtime {

// Which thread drives the loop: the progress thread, or an application thread that waits. One that
// has a deadline executes no operations, which take as long as the other ranks need.
enum class Driver { progress_thread, caller, caller_until_deadline };

class Controller {
 public:
  struct Hooks {
    // Aborts the operations. Returns the ranks whose data they waited for.
    std::function<std::vector<int>()> on_failure;
    // The result that a driving caller waits for may have come.
    std::function<void()> notify_caller;
  };
  // The requests of other threads.
  struct Commands {
    std::vector<Failure> failures;        // the world has failed
    std::vector<Status> suspicions;       // a data connection broke
    std::shared_ptr<ShmMailbox> mailbox;  // neighbours on this host may use it from now on
    bool closing = false;                 // this rank makes no more calls; some are in flight
    bool leaving = false;                 // it has no calls in flight, either
    bool stopping = false;                // leaves at once, unless all have left
  };

  // `sets`: the process sets that exist from the start.
  Controller(const WorldSpec& spec, const ProcessSets& sets, Poller& poller, TensorQueue& queue,
             Verdict& verdict, Executor& executor, trace::Recorder& recorder,
             trace::Tracing& tracing, Hooks hooks);
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;

  // A rank with children in the control tree listens from now on, at address().
  Status open();
  const std::string& address() const { return links_.address(); }
  // Connects to the parent; blocks. `addresses` are those of all ranks. Forming must end by
  // `deadline`. If the parent cannot be reached, the world fails.
  void connect(const std::vector<std::string>& addresses, TimePoint deadline);

  // --- under the lock of the progress engine ---

  // Does everything that is to be done now; returns when to call again even if nothing happens.
  TimePoint work(const Commands& commands, Driver driver);
  // Handles these events, and the messages in shared memory; work() comes next.
  void handle_events(const std::vector<Poller::Event>& events);
  // To be called by the loop without the lock.
  std::vector<std::function<void()>> take_callbacks() { return std::exchange(callbacks_, {}); }
  // The command to stop has been executed; only end() may follow.
  bool stops() const { return stops_; }
  void end() { links_.linger(left_); }
  // See TreeLinks.
  bool has_shm_messages() const { return links_.has_shm_messages(); }
  void notify_unseen(Duration ago = Duration::zero()) { links_.notify_unseen(ago); }

  // --- any thread ---

  // Blocks until all connections that this rank needs are there, or the world has failed.
  Failure wait_formed();
  // Blocks until all have left, or the world has failed.
  Failure wait_left(TimePoint deadline);
  // Tensors that are ready wait for a batch to end.
  bool waits_for_batch() const { return waits_for_batch_; }
  // On rank 0: which ranks have not asked for what others wait for (Negotiator::missing_text()).
  std::string unasked_text() const {
    return negotiator_.missing_text(negotiation_time(Clock::now()));
  }
  CacheStats cache_stats() const { return {cache_misses_, cache_hits_}; }
  // What this rank did when the world failed; nothing: it has not.
  std::optional<RankActivity> last_activity() const;

 private:
  Failure of_another_rank(Failure failure) const;
  std::string describe(int rank) const;
  const std::string& host(int rank) const;
  Failure lost(int rank, const Status& how) const;

  TimePoint read_clock();
  // The negotiator's clock, which stands still while this process is stopped: a rank that was
  // stopped together with this one must not be reported as late.
  TimePoint negotiation_time(TimePoint now) const { return now - stopped_; }
  void check_forming();
  void note_round_trip(std::chrono::microseconds between_hosts) {
    round_trip_ = std::max(round_trip_, between_hosts);
  }
  std::string missing_text() const;
  void run_commands(const Commands& commands, TimePoint now);
  void look_at_lanes(TimePoint now);
  void drain_queue(TimePoint now);
  void close(TimePoint now);
  void negotiate(TimePoint now);
  void tune(const std::vector<Response>& responses);
  void report(const StallInspector::Findings& stalls);
  TimePoint check_timers(TimePoint now);
  void take_dump_request();
  void take_interrupt();
  void handle(const TreeLinks::Received& received, TimePoint now);
  Status handle_frame(int rank, const Frame& frame, TimePoint now);
  void suspect_now(const Failure& why, TimePoint now);
  void enter_failure(const Failure& why);
  void keep_last_activity();
  void report_unreachable(const Failure& verdict, const std::vector<int>& missed);
  void set_formed();
  void set_left();

  const WorldSpec& spec_;
  Poller& poller_;
  TensorQueue& queue_;
  Verdict& verdict_;
  Executor& executor_;
  trace::Recorder& recorder_;
  trace::Tracing& tracing_;
  Hooks hooks_;
  const std::shared_ptr<const ControlTree> tree_;

  // Under the lock of the progress engine.
  TreeLinks links_;
  Negotiator negotiator_;
  std::optional<Tuning> tuning_;   // on rank 0, if autotuning is enabled
  std::set<int> formed_children_;  // children whose whole subtree is connected
  bool subtree_formed_ = false;
  // The longest round trip between hosts that this rank and those below it have measured.
  std::chrono::microseconds round_trip_{0};
  TimePoint forming_until_ = kNever;
  TimePoint suspicion_until_ = kNever;
  TimePoint next_look_at_lanes_ = kNever;
  bool is_recording_ = false;  // all batches, for the timeline
  Failure suspicion_;
  bool closed_ = false;
  bool leave_sent_ = false;
  bool stops_ = false;
  Driver driver_ = Driver::progress_thread;  // within work()
  TimePoint looked_{};
  Duration stopped_{};  // for how long this process was stopped, up to looked_
  std::vector<std::function<void()>> callbacks_;

  // Between threads.
  std::atomic<bool> waits_for_batch_ = false;
  std::atomic<std::uint64_t> cache_misses_ = 0;
  std::atomic<std::uint64_t> cache_hits_ = 0;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool formed_ = false;
  bool left_ = false;
  std::optional<RankActivity> last_activity_;
};

}  // namespace hvd::runtime
