#include "runtime/control/control_loop.h"

#include <algorithm>
#include <pthread.h>
#include <utility>

#include "runtime/core/threads.h"

namespace hvd::runtime {
namespace {

class NoCancellation {
 public:
  NoCancellation() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NoCancellation() { pthread_setcancelstate(before_, nullptr); }
  NoCancellation(const NoCancellation&) = delete;
  NoCancellation& operator=(const NoCancellation&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace

ControlLoop::ControlLoop(const WorldSpec& spec, const ProcessSets& sets, TensorQueue& queue,
                         Verdict& verdict, Executor& executor, trace::Recorder& recorder,
                         trace::Tracing& tracing, bool own_core,
                         std::function<std::vector<int>()> on_failure)
    : spec_(spec),
      own_core_(own_core),
      queue_(queue),
      verdict_(verdict),
      executor_(executor),
      engine_(poller_, own_core),
      controller_(spec, sets, poller_, queue, verdict, executor, recorder, tracing,
                  {std::move(on_failure), [this] { notify_caller(); }}) {}

Status ControlLoop::open() {
  HVD_RETURN_IF_ERROR(poller_.open());
  HVD_RETURN_IF_ERROR(engine_.open());
  return controller_.open();
}

Status ControlLoop::start(std::vector<std::string> addresses, TimePoint deadline) {
  thread_ = start_prompt_thread("hvd-control", [this, addresses = std::move(addresses), deadline] {
    controller_.connect(addresses, deadline);
    loop();
  });
  return {};
}

std::string ControlLoop::unasked_text() {
  constexpr int kTries = 10;
  for (int i = 0; i < kTries; ++i) {
    if (const auto lock = engine_.try_lock(); lock.owns_lock()) return controller_.unasked_text();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return {};
}

void ControlLoop::share(std::shared_ptr<ShmMailbox> mailbox) {
  const std::lock_guard lock(mutex_);
  commands_.mailbox = std::move(mailbox);
  wake();
}

void ControlLoop::suspect(const Status& why) {
  const std::lock_guard lock(mutex_);
  commands_.suspicions.push_back(why);
  wake();
}

void ControlLoop::fail(const Failure& why) {
  const std::lock_guard lock(mutex_);
  commands_.failures.push_back(why);
  wake();
}

void ControlLoop::close() {
  const std::lock_guard lock(mutex_);
  commands_.closing = true;
  wake();
}

Failure ControlLoop::leave(TimePoint deadline) {
  {
    const std::lock_guard lock(mutex_);
    commands_.leaving = true;
  }
  wake();
  return controller_.wait_left(deadline);
}

void ControlLoop::stop() {
  {
    const std::lock_guard lock(mutex_);
    commands_.stopping = true;
  }
  wake();
  engine_.wake_thread();
  if (thread_.joinable()) thread_.join();
}

void ControlLoop::loop() {
  auto lock = engine_.lock();
  for (;;) {
    const auto until = run_once(Driver::progress_thread);
    run_callbacks(lock);
    if (controller_.stops()) break;
    controller_.handle_events(engine_.wait_in_thread(lock, until));
  }
  controller_.end();
}

// As long as entries of this rank are in lanes, which have nothing to do with control messages: the
// two threads of the world look after these meanwhile.
void ControlLoop::wait_in_lanes(const std::function<bool()>& done, TimePoint deadline) {
  thread_local BriefWait brief_wait;
  CallerProgressScope scope([] {});
  const auto over = [&] {
    return done() || verdict_.known() || caller_progress_stopped_ || !queue_.any_in_lanes();
  };
  constexpr std::size_t kFew = 16;
  const auto changed = [&](std::size_t most) {
    return queue_.any_to_take_from_lanes(most) || over();
  };

  if (queue_.any_to_drain()) wake();
  while (!over() && Clock::now() < deadline) {
    if (executor_.serve_lanes()) continue;
    if (brief_wait.until(own_core_, [&] { return changed(kFew); })) continue;
    scope.wake_soon();
    ++sleepers_;
    queue_.lane_event().sleep_until(deadline, [&] { return changed(SIZE_MAX); });
    --sleepers_;
  }
}

void ControlLoop::progress_until(const std::function<bool()>& done, TimePoint deadline) noexcept {
  // Work for the other ranks cannot be left half done: a thread that is cancelled ends after it.
  const NoCancellation whole;
  // A thread of the runtime would wait for a callback that can only come after this one returns.
  if (is_runtime_thread) return;
  if (queue_.any_in_lanes()) wait_in_lanes(done, deadline);
  if (done() || !engine_.claim()) return;

  const Driver driver = deadline == kNever ? Driver::caller : Driver::caller_until_deadline;
  TimePoint until = kNever;
  CallerProgressScope scope([this, &until] {
    auto lock = engine_.lock();
    controller_.notify_unseen();
    engine_.suspend(lock, until);
  });
  const WriteSignalShield shield(SIGPIPE);
  auto lock = engine_.lock();
  for (;;) {
    engine_.begin(lock);
    until = run_once(driver);
    controller_.notify_unseen(ShmMailbox::kMoment);
    run_callbacks(lock);

    // Messages that have arrived are handled first: once this caller has left, no wake-up follows
    // for them.
    const bool over = done() || caller_progress_stopped_ || Clock::now() >= deadline;
    std::vector<Poller::Event> events;
    if (over && !controller_.has_shm_messages()) break;

    if (!over && driver == Driver::caller && executor_.has_inline_work()) {
      lock.unlock();
      executor_.run_inline();
      lock.lock();
      events = engine_.poll_sometimes(lock);
    } else if (!over && !engine_.poll_briefly(lock, events)) {
      controller_.notify_unseen();
      scope.wake_soon();
      events = engine_.wait_in_caller(lock, std::min(until, deadline));
    }
    controller_.handle_events(events);
  }
  controller_.notify_unseen();
  engine_.release(lock, until);
  lock.unlock();
  executor_.end_inline();
}

TimePoint ControlLoop::run_once(Driver driver) {
  const auto commands = take_commands();
  if (commands.mailbox) engine_.use_mailbox(commands.mailbox);
  return controller_.work(commands, driver);
}

// The commands to close, to leave and to stop stay in force once given.
Controller::Commands ControlLoop::take_commands() {
  const std::lock_guard lock(mutex_);
  Controller::Commands taken = std::exchange(commands_, {});
  commands_.closing = taken.closing;
  commands_.leaving = taken.leaving;
  commands_.stopping = taken.stopping;
  return taken;
}

// Callbacks run without the lock: they may wait for other threads of the program, which may need
// the lock themselves. On a caller's thread they are posted to the executor, because they might
// wait for locks that this caller holds.
void ControlLoop::run_callbacks(ProgressEngine::Lock& lock) {
  auto callbacks = controller_.take_callbacks();
  if (callbacks.empty()) return;
  if (CallerProgressScope::is_active()) {
    for (auto& callback : callbacks) executor_.post(std::move(callback));
    return;
  }
  lock.unlock();
  for (const auto& callback : callbacks) callback();
  lock.lock();
}

}  // namespace hvd::runtime
