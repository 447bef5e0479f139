#include "worker/process/process_world.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <pthread.h>
#include <thread>
#include <unistd.h>

#include <hvd/error.h>

#include "base/log.h"
#include "base/security/crypto.h"
#include "base/text.h"
#include "base/threads.h"
#include "runtime/core/threads.h"
#include "runtime/ops/mpi_library.h"

namespace hvd::worker {
namespace {

// From the end of a process to the stop that hvdrun orders because of it; usually milliseconds.
constexpr std::chrono::milliseconds kStopGrace{500};

}  // namespace

ProcessWorld& ProcessWorld::instance() {
  static auto& only = *new ProcessWorld();
  return only;
}

namespace {
[[maybe_unused]] const auto& process_world_is_made = ProcessWorld::instance();
}  // namespace

ProcessWorld::ProcessWorld() {
  keep_free_in_children(mutex_);
  ::pthread_atfork(nullptr, nullptr, [] { instance().begin_in_child(); });
}

// A thread of the parent may hold the first lock for as long as a world takes to form, which fork()
// does not wait for. The child does not have that thread: it gets a new lock, and new objects of
// all that a thread changes under that lock, which may be half changed. What they held stays in
// memory, the world of the parent too: to destroy it is to wait for its threads.
void ProcessWorld::begin_in_child() {
  std::construct_at(&lifecycle_mutex_);
  std::construct_at(&options_);
  std::construct_at(&settings_);
  std::construct_at(&rounds_);
  std::construct_at(&ended_because_);
  std::construct_at(&teardown_);
  std::construct_at(&launcher_);
  std::construct_at(&current_);
  membership_ = nullptr;  // the child is no member of the job
  std::construct_at(&meter_, std::make_shared<runtime::WorkMeter>());
  std::construct_at(&entry_timer_, [meter = meter_] { return meter->received(); });
}

std::shared_ptr<runtime::World> ProcessWorld::world() const {
  const std::lock_guard lock(mutex_);
  return current_.world();
}

std::shared_ptr<runtime::World> ProcessWorld::world_for(std::string_view call) {
  if (auto found = world()) return found;
  std::unique_lock lock(mutex_);
  if (current_.phase() == CurrentWorld::Phase::joining && current_.is_of_this_process()) {
    lock.unlock();
    if (const Status entered = enter_first(); !entered.ok()) {
      throw InitError(cat("hvd::", call, "(): ", entered.message()));
    }
    if (auto found = world()) return found;
    lock.lock();
  }

  if (const auto failure = current_.end_reason(); !failure.ok()) {
    lock.unlock();
    std::rethrow_exception(exception_of(failure, runtime::Kind::allreduce));
  }
  const auto& last = current_.last_failure();
  throw NotInitializedError(cat("hvd::", call, "() needs hvd::init() before it",
                                last.empty() ? "" : "; the world before was left because ", last));
}

// What the others did before the run they are in is past. The world is not entered for that: its
// members would lose a member as soon as the program ends with the error.
std::shared_ptr<runtime::World> ProcessWorld::world_for_collective(std::string_view call) {
  if (catches_up_) {
    const std::lock_guard lock(mutex_);
    if (runs_ == 0 && current_.is_initialized()) {
      throw InvalidArgumentError(
          cat("hvd::", call,
              "(): this worker has come to a job that is under way, whose other workers do not "
              "make this call now. Collectives belong in the function that elastic::run() calls, "
              "and neither before elastic::run() nor between two runs; the state needs none, since "
              "run() brings a new worker all that was added to it"));
    }
  }
  return world_for(call);
}

Place ProcessWorld::place_for(std::string_view call) {
  {
    const std::lock_guard lock(mutex_);
    const auto phase = current_.phase();
    if (phase == CurrentWorld::Phase::inside || phase == CurrentWorld::Phase::between) {
      return current_.place();
    }
  }
  world_for(call);
  const std::lock_guard lock(mutex_);
  return current_.place();
}

bool ProcessWorld::is_initialized() const {
  const std::lock_guard lock(mutex_);
  return current_.is_initialized();
}

void ProcessWorld::restart_names() {
  const std::lock_guard lock(mutex_);
  current_.restart_names();
}

bool ProcessWorld::has_dynamic_sets() const {
  const std::lock_guard lock(mutex_);
  return current_.has_dynamic_sets();
}

std::string ProcessWorld::next_name(const CallSeries& series) {
  const std::lock_guard lock(mutex_);
  return current_.next_name(series);
}

void ProcessWorld::return_name(const CallSeries& series, std::string_view name) {
  const std::lock_guard lock(mutex_);
  current_.return_name(series, name);
}

Status ProcessWorld::init(const InitOptions& options) {
  const std::lock_guard lock(lifecycle_mutex_);
  if (is_initialized()) {
    if (options == options_ || options == InitOptions()) return {};
    throw InvalidArgumentError(
        "hvd::init(): the world was made with other options; hvd::shutdown() comes before a new "
        "one");
  }
  if (program_ends()) {
    return {Code::failed_precondition,
            "the program is ending, and what hvd needs is gone: no world can begin in a static "
            "destructor or a handler of atexit()"};
  }
  if (followed() != nullptr) {
    return {Code::failed_precondition,
            "hvd_follow() was called: this process has collectives of its own"};
  }
  register_end_of_program();

  {
    const std::lock_guard inner(mutex_);
    departure_.leaving = false;
    if (membership_ != nullptr) membership_->resume();
  }

  const auto descriptor = process_environment()(worker_link::kDescriptorVariable);
  options_ = options;
  return agent_ != nullptr || descriptor ? init_as_worker(descriptor.value_or(""))
                                         : init_without_hvdrun();
}

// For programs that return from main() without shutdown(). _exit() and abort() do not run it.
void ProcessWorld::register_end_of_program() {
  // fork() waits for this lock: half of this, done by a thread that the child does not have, could
  // not be ended there.
  const std::lock_guard lock(mutex_);
  if (end_is_registered_) return;
  // The cryptography registers its own end when it is first used. Handlers run in the reverse
  // order, and ours needs the cryptography, so that this has to be used before.
  [[maybe_unused]] const Digest first_use = Mac(Token::random())({"first use"});
  ::on_exit([](int exit_code, void*) { instance().end_of_program(exit_code); }, nullptr);
  end_is_registered_ = true;
}

AgentChannel::Activity ProcessWorld::activity(bool wants_dump) const {
  if (const auto current = world()) {
    // A worker that is told to end has often lost its world just before.
    if (!wants_dump) return current->last_activity();
    auto doing = current->activity();
    if (!current->config().flight_recorder.empty()) current->dump("asked for by SIGUSR1");
    return doing;
  }
  const std::lock_guard lock(mutex_);
  if (current_.phase() == CurrentWorld::Phase::joining) {
    return {0, "waits for a world that it can join", "nothing", {}};
  }
  if (current_.phase() == CurrentWorld::Phase::between) {
    return {0, "waits for the next world", current_.end_reason().status.message(), {}};
  }
  return {
      0, "is in no world: hvd::init() has not returned, or shutdown() was called", "nothing", {}};
}

void ProcessWorld::before_failure_is_thrown() {
  if (membership() != nullptr) {
    const auto failed = world();
    if (!failed) return;
    if (!failed->failure().ok()) entry_timer_.world_ended(Clock::now());
    if (!runtime::is_runtime_thread) failed->wait_idle(Clock::now() + kInFlightTimeout);
    return;
  }

  AgentChannel* agent = nullptr;
  TimePoint until = kNever;
  {
    const std::lock_guard lock(mutex_);
    if (agent_ == nullptr || !agent_->is_of_this_process()) return;
    agent = agent_;
    until = current_.stop_deadline(kStopGrace);
  }

  if (!agent->wait_for_stop(until)) return;
  // SIGTERM comes next. A program with no handler for it shall end by the signal, not by the
  // exception that we throw.
  std::this_thread::sleep_until(std::min(until, Clock::now() + kSignalGrace));
}

// A program that ends with an error leaves as if it had crashed: were it to call shutdown(), the
// others would hear that it is done, fail, and perhaps end before it.
void ProcessWorld::end_of_program(int exit_code) {
  // A callback has ended the program: its thread cannot wait for the world.
  if (runtime::is_runtime_thread) return;
  departure_.program_ends = true;
  if (exit_code == 0) {
    shutdown();
  } else if (world()) {
    std::shared_ptr<runtime::World> leaving;  // its end tells the others
    {
      const std::lock_guard lock(mutex_);
      leaving = current_.world();
      current_.leave({});
    }
    if (leaving) leaving->abandon();
  }

  // A thread that waits for a world holds this lock, and nothing of ours is being taken down.
  const std::unique_lock lock(lifecycle_mutex_, std::try_to_lock);
  if (!lock) return;
  teardown_.close();
  // The other processes of a launcher wait in MPI for those that end in order.
  if (exit_code == 0) runtime::end_mpi();
  launcher_.reset();
}

void ProcessWorld::shutdown() {
  // A forked child that ends must not wait for threads that it does not have, nor for the lock.
  if (!is_initialized()) return;
  if (runtime::is_runtime_thread) {
    throw InvalidArgumentError(
        "hvd::shutdown(): it waits for the threads of hvd, and this is one: a callback cannot call "
        "it");
  }
  begin_to_leave();

  const std::lock_guard lock(lifecycle_mutex_);
  auto leaving = world();
  runtime::Failure outcome;
  if (leaving) outcome = leave(*leaving);
  tell_of_the_end(leaving.get(), outcome);

  {
    const std::lock_guard inner(mutex_);
    const auto failure = leaving ? leaving->failure() : current_.end_reason();
    current_.leave(failure.status.message());
  }
  // Work in flight that does not end holds the threads of the world.
  if (outcome.status.code() == Code::deadline_exceeded) teardown_.release(std::move(leaving));
}

// Another thread may wait for the next world, which this process will not be in.
void ProcessWorld::begin_to_leave() {
  const std::lock_guard lock(mutex_);
  departure_.leaving = true;
  if (membership_ != nullptr && current_.phase() != CurrentWorld::Phase::inside) {
    membership_->abandon();
  }
}

bool ProcessWorld::is_leaving() const {
  const std::lock_guard lock(mutex_);
  return departure_.leaving;
}

// The others may have much to do before they come to shutdown(), too; if they die, the world fails.
runtime::Failure ProcessWorld::leave(runtime::World& world) {
  const TimePoint begun = Clock::now();
  std::chrono::milliseconds timeout{};
  {
    const std::lock_guard lock(mutex_);
    timeout = current_.shutdown_timeout();
  }
  const TimePoint limit = begun + std::max(settings_.config.rendezvous_timeout, timeout);

  TimePoint until = begun + timeout;
  for (;;) {
    auto outcome = world.shutdown(until);
    // The program has heard already of a world that has failed.
    if (outcome.ok() || outcome.world_failed) return outcome;
    const auto now = Clock::now();
    const bool in_flight = !world.wait_idle(now);
    const bool is_late = outcome.status.code() == Code::deadline_exceeded;
    HVD_LOG(warning, "shutdown: " << outcome.status.message());
    if (!is_late || in_flight || now >= limit) return outcome;
    until = std::min(limit, now + (now - begun));
  }
}

// The agent is told whether the work is done. In an elastic job it is if all ranks have agreed, by
// returning from elastic::run or by calling shutdown(); otherwise only this worker leaves. A worker
// that has left at a commit is in a world that all ranks have left, and the work goes on in another
// one. In a static job the work also is done if the world has failed: the program has handled that,
// and its exit code counts.
void ProcessWorld::tell_of_the_end(const runtime::World* left, const runtime::Failure& outcome) {
  bool is_finished = false;
  {
    const std::lock_guard lock(mutex_);
    if (agent_ == nullptr || departure_.is_told) return;
    is_finished = departure_.finished;
  }
  const bool is_elastic = membership_ != nullptr;
  const bool is_out = is_elastic && membership_->is_out();
  const bool agreed = left != nullptr && left->failure().ok() && outcome.ok();
  Status told;
  if (is_finished || (agreed && !is_out) || (left != nullptr && !is_elastic)) {
    told = agent_->send_done();
  } else if (is_elastic && !is_out) {
    told = agent_->send_left("");
  }
  if (!told.ok()) HVD_LOG(warning, told.to_string());
}

}  // namespace hvd::worker
