// The progress loop of this rank's control plane. The Controller (controller.h) knows what is to be
// done; this class calls it whenever something has happened, and sleeps until then: a request was
// enqueued, a frame arrived, a batch has ended, a peer is gone. An idle world sends nothing but
// signs of life between hosts.
//
// The loop has a thread of its own. An application thread that waits for a result of this world
// runs the loop instead while it waits (progress_engine.h), and executes small operations itself:
// request, response and result then pass through one thread of each rank, not three. The requests
// of other threads are kept as Controller::Commands until the loop runs next.
//
// open() and start() once, in this order; stop() ends the thread. The other calls are safe from any
// thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "runtime/control/controller.h"
#include "runtime/control/executor.h"
#include "runtime/control/progress_engine.h"
#include "runtime/control/tracing.h"
#include "runtime/core/verdict.h"
#include "runtime/core/world_spec.h"
#include "runtime/negotiation/tensor_queue.h"
#include "runtime/net/poller.h"

namespace hvd::runtime {

class ControlLoop {
 public:
  // Upper bound of the time for which new requests are gathered before the loop looks at them.
  static constexpr std::chrono::microseconds kMostGathered{1'000};

  // `sets`: the process sets that exist from the start; `own_core`: see ProgressEngine.
  ControlLoop(const WorldSpec& spec, const ProcessSets& sets, TensorQueue& queue, Verdict& verdict,
              Executor& executor, trace::Recorder& recorder, trace::Tracing& tracing, bool own_core,
              std::function<std::vector<int>()> on_failure);
  ~ControlLoop() { stop(); }
  ControlLoop(const ControlLoop&) = delete;
  ControlLoop& operator=(const ControlLoop&) = delete;

  // A rank with children in the control tree listens from now on, at address().
  Status open();
  const std::string& address() const { return controller_.address(); }
  // Starts the thread; `addresses` are those of all ranks. Forming must end by `deadline`.
  Status start(std::vector<std::string> addresses, TimePoint deadline);
  // Neighbours on this host may send messages through this mailbox from now on.
  void share(std::shared_ptr<ShmMailbox> mailbox);
  // Controller::unasked_text(). Safe from any thread. Empty, too, if the world's thread is held up.
  std::string unasked_text();
  std::optional<RankActivity> last_activity() const { return controller_.last_activity(); }
  // Blocks until all connections that this rank needs are there, or the world has failed.
  Failure wait_formed() { return controller_.wait_formed(); }

  void wake() { poller_.wake(); }
  // Requests have been enqueued: the loop looks at them within a cycle, so that the ones that
  // follow are sent together with them, or as soon as anything else happens.
  void gather() { poller_.wake_within(std::min(spec_.config.cycle_time, kMostGathered)); }
  // A batch has ended on a thread that does not drive the loop.
  void batch_ended() {
    if (controller_.waits_for_batch()) wake();
  }
  // For an application thread that waits for something that a callback of this world makes true:
  // runs the loop until done() returns true, or the deadline has passed. Returns at once if the
  // thread cannot be of use here. Neither this function nor done() may throw.
  void progress_until(const std::function<bool()>& done, TimePoint deadline) noexcept;
  // Callers stop driving from now on: a world that is being shut down is not kept alive by threads
  // that wait for it.
  void stop_caller_progress() {
    caller_progress_stopped_ = true;
    notify_caller();
  }
  // The result that a caller waits for may have come by way of another thread.
  void notify_caller() {
    engine_.notify_caller();
    if (sleepers_ > 0) queue_.lane_event().notify_all();
  }
  CacheStats cache_stats() const { return controller_.cache_stats(); }
  // A data connection broke; if no rank turns out to be gone, this becomes the world's failure.
  void suspect(const Status& why);
  // The world has failed.
  void fail(const Failure& why);
  // The queue takes no more calls, but some are in flight: the world may fail those that cannot
  // complete. leave() may come next.
  void close();
  // This rank has no calls in flight, either; blocks until the same is true of all ranks.
  Failure leave(TimePoint deadline);
  // Leaves at once if leave() has not succeeded; joins the thread.
  void stop();

 private:
  void loop();
  void wait_in_lanes(const std::function<bool()>& done, TimePoint deadline);
  TimePoint run_once(Driver driver);
  Controller::Commands take_commands();
  void run_callbacks(ProgressEngine::Lock& lock);

  const WorldSpec& spec_;
  const bool own_core_;
  TensorQueue& queue_;
  Verdict& verdict_;
  Executor& executor_;
  Poller poller_;
  ProgressEngine engine_;
  Controller controller_;  // under the engine's lock
  std::thread thread_;

  // Between threads.
  std::atomic<bool> caller_progress_stopped_ = false;
  std::atomic<int> sleepers_ = 0;  // threads that wait in lanes, and do not look
  std::mutex mutex_;
  Controller::Commands commands_;
};

}  // namespace hvd::runtime
