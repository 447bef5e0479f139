// One rank's part in the control plane: it tells its neighbours in the control tree what this rank
// asks for, hands what was decided to the executor, and so forms the world, works in it, leaves it,
// or ends it. The Negotiator (negotiation/negotiator.h) says what to agree on; the links
// (tree_links.h) carry it.
//
// It alone decides that the world has failed: it sets the verdict, tells its neighbours, who tell
// theirs, closes the queue, and calls on_failure, which aborts the operations. Whose connection
// ends unexpectedly is gone, whether that is the parent or a child: so both parts of a tree whose
// inner node died hear of it, with its name.
//
// Has no thread: the control loop owns it (control_loop.h). open() and connect() once, in this
// order, then the second part, for whoever has the loop's turn; the last part is safe from any
// thread.
#pragma once

#include <atomic>
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

class Controller {
 public:
  struct Hooks {
    std::function<void()> on_failure;
    std::function<void()> tell_helper;  // what a helper waits for has come
  };
  // What other threads want.
  struct Commands {
    std::vector<Failure> failures;   // the world has failed
    std::vector<Status> suspicions;  // a data connection broke
    std::shared_ptr<HostMail> mail;  // neighbours on this host may write letters from now on
    bool leaving = false;            // this rank wants no more
    bool stopping = false;           // leaves at once, unless all have left
  };

  // `sets`: those that there are from the start.
  Controller(const WorldSpec& spec, const ProcessSets& sets, Poller& poller, TensorQueue& queue,
             Verdict& verdict, Executor& executor, trace::Recorder& recorder,
             trace::Tracing& tracing, Hooks hooks);
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;

  // Whoever has children in the tree listens; its address, as they need it, is address().
  Status open();
  const std::string& address() const { return links_.address(); }
  // Connects to the parent; blocks. `addresses` are those of all ranks. Forming must end by
  // `deadline`. That it cannot be is a failure of the world.
  void connect(const std::vector<std::string>& addresses, TimePoint deadline);

  // --- whoever has the turn ---

  // All that there is to do now; returns when to look again. `is_helped`: the turn is a helper's.
  TimePoint work(const Commands& commands, bool is_helped);
  // What has happened, and the letters that there are; work() comes next.
  void take_in(const std::vector<Poller::Event>& events);
  // To be called when the turn is over.
  std::vector<std::function<void()>> take_callbacks() { return std::exchange(callbacks_, {}); }
  // The command to stop has been obeyed; then the last call is end().
  bool stops() const { return stops_; }
  void end() { links_.linger(left_); }
  // As those of TreeLinks.
  bool has_letters() const { return links_.has_letters(); }
  void announce_letters(Duration ago = Duration::zero()) { links_.announce_letters(ago); }

  // --- any thread ---

  // Blocks until all connections that this rank needs are there, or the world has failed.
  Failure wait_formed();
  // Blocks until all have left, or the world has failed.
  Failure wait_left(TimePoint deadline);
  // What is ready waits for a batch to end.
  bool wants_ends() const { return wants_ends_; }
  AskedCounts asked() const { return {asked_in_full_, asked_by_id_}; }

 private:
  std::string who(int rank) const;
  const std::string& host(int rank) const;
  Failure lost(int rank, const Status& how) const;

  TimePoint look_at_clock();
  // What the negotiator knows of time: it stands still while this process is stopped, so that
  // nobody is late who was stopped with it.
  TimePoint own(TimePoint now) const { return now - stopped_; }
  void check_forming();
  std::string missing_text() const;
  void obey(const Commands& commands, TimePoint now);
  void drain_queue(TimePoint now);
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
  bool stops_ = false;
  bool is_helped_ = false;  // within work()
  TimePoint looked_{};
  Duration stopped_{};  // this process, up to looked_
  std::vector<std::function<void()>> callbacks_;

  // Between threads.
  std::atomic<bool> wants_ends_ = false;
  std::atomic<std::uint64_t> asked_in_full_ = 0;
  std::atomic<std::uint64_t> asked_by_id_ = 0;
  std::mutex mutex_;  // of those who wait for these; they change within a turn
  std::condition_variable changed_;
  bool formed_ = false;
  bool left_ = false;
};

}  // namespace hvd::runtime
