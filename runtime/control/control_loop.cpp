#include "runtime/control/control_loop.h"

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
                         trace::Tracing& tracing, bool own_core, std::function<void()> on_failure)
    : spec_(spec),
      executor_(executor),
      duty_(poller_, own_core),
      controller_(spec, sets, poller_, queue, verdict, executor, recorder, tracing,
                  {std::move(on_failure), [this] { tell_helper(); }}) {}

Status ControlLoop::open() {
  HVD_RETURN_IF_ERROR(poller_.open());
  HVD_RETURN_IF_ERROR(duty_.open());
  return controller_.open();
}

Status ControlLoop::start(std::vector<std::string> addresses, TimePoint deadline) {
  thread_ = start_thread("hvd-control", [this, addresses = std::move(addresses), deadline] {
    controller_.connect(addresses, deadline);
    loop();
  });
  return {};
}

void ControlLoop::share(std::shared_ptr<HostMail> mail) {
  const std::lock_guard lock(mutex_);
  commands_.mail = std::move(mail);
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
  duty_.wake_keeper();
  if (thread_.joinable()) thread_.join();
}

void ControlLoop::loop() {
  auto turn = duty_.take_turn();
  for (;;) {
    const auto until = look_around(false);
    call_back(turn);
    if (controller_.stops()) break;
    controller_.take_in(duty_.keep(turn, until));
  }
  controller_.end();
}

void ControlLoop::help_until(const std::function<bool()>& done) noexcept {
  // Half of the others' work cannot be left undone: a thread that is cancelled ends after it.
  const NoCancellation whole;
  // A callback waits for what can only come when it has returned.
  if (is_own_thread || !duty_.come()) return;
  TimePoint until = kNever;
  const HelpingThread meanwhile([this, &until] {
    auto turn = duty_.take_turn();
    controller_.announce_letters();
    duty_.step_aside(turn, until);
  });
  const BrokenPipeShield shield;
  auto turn = duty_.take_turn();
  for (;;) {
    duty_.step_in(turn);
    until = look_around(true);
    controller_.announce_letters(HostMail::kMoment);
    call_back(turn);
    const bool over = done() || helpers_dismissed_;
    std::vector<Poller::Event> events;
    if (over && !controller_.has_letters()) break;
    if (!over && executor_.has_little()) {
      turn.unlock();
      executor_.run_here();
      turn.lock();
      events = duty_.glance(turn);
    } else if (!over && !duty_.look_briefly(turn, events)) {
      controller_.announce_letters();
      events = duty_.help(turn, until);
    }
    controller_.take_in(events);
  }
  controller_.announce_letters();
  duty_.leave(turn, until);
  turn.unlock();
  executor_.hand_over();
}

TimePoint ControlLoop::look_around(bool is_helped) {
  const auto commands = take_commands();
  if (commands.mail) duty_.watch_letters(commands.mail);
  return controller_.work(commands, is_helped);
}

// To leave and to stop hold for good.
Controller::Commands ControlLoop::take_commands() {
  const std::lock_guard lock(mutex_);
  Controller::Commands taken = std::exchange(commands_, {});
  commands_.leaving = taken.leaving;
  commands_.stopping = taken.stopping;
  return taken;
}

// What they call may wait for other threads of the program, which may want the turn, or for locks
// that one that helps holds.
void ControlLoop::call_back(Duty::Turn& turn) {
  auto callbacks = controller_.take_callbacks();
  if (callbacks.empty()) return;
  if (HelpingThread::is_this()) {
    for (auto& callback : callbacks) executor_.post(std::move(callback));
    return;
  }
  turn.unlock();
  for (const auto& callback : callbacks) callback();
  turn.lock();
}

}  // namespace hvd::runtime
