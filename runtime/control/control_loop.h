// Whose thread the control plane of this rank runs on. Its Controller (controller.h) knows what is
// to be done; this calls it whenever something has happened, and sleeps until then: a request was
// enqueued, a frame arrived, a batch has ended, somebody is gone. An idle world sends nothing.
//
// It has a thread, and a thread of the program that waits for this world does the same work instead
// while it waits (duty.h), and runs what is little itself: what a request, its response and its
// result have to wait for is then one thread of each rank, not three. What other threads want of
// it waits, as Controller::Commands, for the next who looks around.
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
#include "runtime/control/duty.h"
#include "runtime/control/executor.h"
#include "runtime/control/tracing.h"
#include "runtime/core/verdict.h"
#include "runtime/core/world_spec.h"
#include "runtime/negotiation/tensor_queue.h"
#include "runtime/net/poller.h"

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
  const std::string& address() const { return controller_.address(); }
  // Starts the thread; `addresses` are those of all ranks. Forming must end by `deadline`.
  Status start(std::vector<std::string> addresses, TimePoint deadline);
  // Neighbours on this host may write letters from now on.
  void share(std::shared_ptr<HostMail> mail);
  // Blocks until all connections that this rank needs are there, or the world has failed.
  Failure wait_formed() { return controller_.wait_formed(); }

  void wake() { poller_.wake(); }
  // Requests have been enqueued: they are looked at within a cycle, so that those that follow come
  // along, or as soon as anything happens.
  void gather() { poller_.wake_within(std::min(spec_.config.cycle_time, kMostGathered)); }
  // A batch has ended, on another thread than one that helps.
  void batch_ended() {
    if (controller_.wants_ends()) wake();
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
  AskedCounts asked() const { return controller_.asked(); }
  // A data connection broke; if nobody turns out to be gone, this is what everybody is told.
  void suspect(const Status& why);
  // The world has failed.
  void fail(const Failure& why);
  // This rank wants no more; blocks until all do.
  Failure leave(TimePoint deadline);
  // Leaves at once if leave() has not ended well; joins the thread.
  void stop();

 private:
  void loop();
  TimePoint look_around(bool is_helped);
  Controller::Commands take_commands();
  void call_back(Duty::Turn& turn);

  const WorldSpec& spec_;
  Executor& executor_;
  Poller poller_;
  Duty duty_;
  Controller controller_;  // of whoever has the turn
  std::thread thread_;

  // Between threads.
  std::atomic<bool> helpers_dismissed_ = false;
  std::mutex mutex_;
  Controller::Commands commands_;
};

}  // namespace hvd::runtime
