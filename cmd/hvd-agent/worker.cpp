#include "cmd/hvd-agent/worker.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "base/descriptors.h"
#include "base/machine/proc.h"
#include "base/machine/topology.h"
#include "base/socket.h"
#include "base/text.h"
#include "cmd/hvd-agent/host_network.h"

namespace hvd::agent {
namespace {

// The agent's end does not block, the worker's does.
Result<Pipe> make_output_pipe() {
  auto pipe = make_pipe();
  if (pipe.ok()) HVD_RETURN_IF_ERROR(set_nonblocking(pipe->read_end.get(), true));
  return pipe;
}

}  // namespace

std::optional<std::uint64_t> OutOfMemoryKills::take(const std::string& membership) {
  const auto found = memory_events(membership);
  if (found.empty()) return std::nullopt;
  const auto& [group, now] = *found.begin();  // those below it come later
  MemoryEvents& taken = taken_[group];
  if (now.kills <= taken.kills) return std::nullopt;
  ++taken.kills;
  return now.limit;
}

SharedBytes HostWorld::frame_for(agent_link::Incarnation incarnation) const {
  const auto own = std::find_if(keys.begin(), keys.end(), [&](const agent_link::WorkerKey& key) {
    return key.incarnation == incarnation;
  });
  return share(worker_link::World{world.generation, world.effective, world.document,
                                  own == keys.end() ? std::string() : own->sealed}
                   .encode());
}

Worker::Worker(WorkerContext& context, agent_link::Incarnation incarnation, std::string name,
               std::function<void()> changed)
    : context_(context),
      incarnation_(incarnation),
      name_(std::move(name)),
      changed_(std::move(changed)),
      standard_output_(context.pump, incarnation, agent_link::Stream::standard_output, changed_),
      standard_error_(context.pump, incarnation, agent_link::Stream::standard_error, changed_),
      channel_({
          .initialised =
              [this] {
                heartbeat_.begin(Clock::now());
                context_.link.send(agent_link::WorkerInitialised{incarnation_}.encode());
              },
          .done =
              [this] {
                heartbeat_.end();
                context_.link.send(agent_link::WorkerDone{incarnation_}.encode());
              },
          .ready = [this] { context_.link.send(agent_link::WorkerReady{incarnation_}.encode()); },
          .leaves = [this] { context_.link.send(agent_link::WorkerLeaves{incarnation_}.encode()); },
          .left =
              [this](worker_link::Left left) {
                heartbeat_.end();
                context_.link.send(
                    agent_link::WorkerLeft{incarnation_, std::move(left.reason), left.for_good}
                        .encode());
              },
          .cannot_reach =
              [this](std::string host) {
                context_.link.send(agent_link::WorkerCannotReach{std::move(host)}.encode());
              },
          .committed =
              [this](std::uint64_t generation) {
                context_.link.send(agent_link::WorldCommitted{incarnation_, generation}.encode());
              },
          .alive = [this] { heartbeat_.heard(Clock::now()); },
          .activity_wanted = [this] { context_.link.send(agent_link::ActivityWanted{}.encode()); },
          .activity = [this](worker_link::Activity activity) { on_activity(std::move(activity)); },
          .work = [this](WorkReading reading) { new_work_ = std::move(reading); },
          .mark = [this](std::string commit) { context_.on_commit_mark(std::move(commit)); },
          .problem = [this](const std::string& what) { problem(what); },
      }),
      heartbeat_(context.silence) {}

void Worker::problem(std::string_view what) {
  context_.link.send(agent_link::Problem{cat("worker ", name_, " ", what)}.encode());
}

void Worker::start(agent_link::Launch launch, UniqueFd predecessor) {
  const Status started = try_start(std::move(launch), std::move(predecessor));
  if (started.ok()) return;
  launch_failed(started.code() == Code::invalid_argument ? EINVAL : EAGAIN, started.message());
}

Status Worker::try_start(agent_link::Launch launch, UniqueFd predecessor) {
  WorkerStart start;
  start.predecessor = std::move(predecessor);
  start.command = std::move(launch.command);
  start.environment = std::move(launch.environment);
  add_host_variables(launch.host_variables, start.environment);
  start.working_directory = std::move(launch.working_directory);
  if (launch.binding != Binding::none) {
    start.processors = part_of(usable_processors(), launch.binding, static_cast<int>(launch.part),
                               static_cast<int>(launch.parts));
  }
  start.open_files = context_.open_files;
  HVD_RETURN_IF_ERROR(check(start));

  auto out = make_output_pipe();
  HVD_RETURN_IF_ERROR(out.status());
  auto err = make_output_pipe();
  HVD_RETURN_IF_ERROR(err.status());
  auto sockets = socket_pair();
  HVD_RETURN_IF_ERROR(sockets.status());
  start.standard_output = std::move(out->write_end);
  start.standard_error = std::move(err->write_end);
  start.socket = std::move(sockets->second);
  if (context_.keeps_state) {
    HVD_RETURN_IF_ERROR(take_state_memory());
    start.state_memory = state_memory_->duplicate();
  }
  SharedBytes world = context_.world ? context_.world->frame_for(incarnation_) : nullptr;
  HVD_RETURN_IF_ERROR(channel_.open(context_.loop, std::move(sockets->first),
                                    std::move(launch.welcome), std::move(world)));

  auto reaper = fork_reaper(start, context_.lease, context_.outlives_driver);
  HVD_RETURN_IF_ERROR(reaper.status());
  reaper_pid_ = reaper->pid;
  auto watch = context_.loop.watch(reaper->socket.get(), EPOLLIN,
                                   [this](std::uint32_t) { on_reaper_events(); });
  // A reaper that cannot be watched ends with its worker when its socket is closed.
  HVD_RETURN_IF_ERROR(watch.status());
  reaper_ = std::move(reaper->socket);
  reaper_watch_ = std::move(*watch);
  standard_output_.open(std::move(out->read_end));
  standard_error_.open(std::move(err->read_end));
  return {};
}

// The newest first: if fewer workers come than there were, one of them has it.
Status Worker::take_state_memory() {
  auto& free = context_.free_state_memory;
  if (free.empty()) {
    auto memory = StateMemory::make();
    HVD_RETURN_IF_ERROR(memory.status());
    state_memory_ = std::move(*memory);
    return {};
  }
  const auto newest = std::max_element(free.begin(), free.end(), [](const auto& a, const auto& b) {
    return a.newest() < b.newest();
  });
  state_memory_ = std::move(*newest);
  free.erase(newest);
  return {};
}

std::string Worker::kept_commit() const {
  const CommitId newest = state_memory_ ? state_memory_->newest() : CommitId();
  return newest.none() ? std::string() : to_text(newest);
}

void Worker::return_state_memory() {
  if (state_memory_) context_.free_state_memory.push_back(*std::exchange(state_memory_, {}));
}

void Worker::launch_failed(int error_number, const std::string& message) {
  state_ = State::failed;
  return_state_memory();
  kill_at_ = kNever;
  standard_output_.drop();
  standard_error_.drop();
  channel_.close();
  context_.link.send(
      agent_link::LaunchFailed{incarnation_, error_number, cat("worker ", name_, ": ", message)}
          .encode());
  order(ReaperOrder::Kind::kill);  // if there is a reaper already
  changed_();
}

void Worker::on_reaper_events() {
  if (receive_reports(reaper_, [this](const ReaperReport& report) { on_report(report); })) return;
  reaper_watch_.end();
  reaper_.reset();
  if (state_ == State::launching) launch_failed(ECHILD, "its reaper was killed");
  changed_();
}

void Worker::on_report(const ReaperReport& report) {
  switch (report.kind) {
    case ReaperReport::Kind::launched:
      return launched(report.pid);
    case ReaperReport::Kind::launch_failed:
      return launch_failed(report.error_number, report.message);
    case ReaperReport::Kind::exited:
      return exited(report.wait_status, report.message);
    case ReaperReport::Kind::unkillable:
      has_unkillable_process_ = true;
      return problem(cat("left process ", report.pid, ", which ",
                         report.error_number == EPERM ? "this agent may not kill"
                                                      : "has not died of SIGKILL yet"));
  }
}

void Worker::launched(pid_t pid) {
  state_ = State::running;
  pid_ = pid;
  context_.link.send(agent_link::Launched{incarnation_, pid, kept_commit()}.encode());
  for (auto* const stream : {&standard_output_, &standard_error_}) {
    if (const Status started = stream->start(context_.loop); !started.ok()) {
      stream->close(context_.link);
      problem(cat("goes on without its output: ", started.message()));
    }
  }
}

// The kernel may still be freeing the memory of the worker itself. A process that it has started
// holds devices and ports as well as the worker did. A worker that was told to end keeps its grace.
UniqueFd Worker::clear_place() {
  if (state_ != State::exited || reaper_gone() || reaper_pid_ <= 0 || has_unkillable_process_)
    return {};
  if (kill_at_ == kNever) kill();
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, reaper_pid_, 0)));
}

// Its reaper was killed before it could tell more.
void Worker::reaped_by_agent(int wait_status) {
  exited(wait_status, read_proc_file("/proc/self/cgroup"));
}

void Worker::exited(int wait_status, const std::string& control_groups) {
  if (state_ != State::running) return;
  state_ = State::exited;
  channel_.receive();  // "done" counts if it was sent before the exit
  heartbeat_.end();
  agent_link::Exited how;
  how.incarnation = incarnation_;
  how.pid = pid_;
  if (WIFSIGNALED(wait_status)) {
    how.signal_number = WTERMSIG(wait_status);
    how.core_dumped = WCOREDUMP(wait_status);
  } else {
    how.exit_code = WEXITSTATUS(wait_status);
  }
  // One that ends well has left the state to others, or the work is done.
  const bool ended_well = WIFEXITED(wait_status) && how.exit_code == 0;
  if (ended_well) state_memory_.reset();
  how.kept = kept_commit();
  return_state_memory();
  if (how.signal_number == SIGKILL && !was_killed_by_agent_) {
    const auto limit = context_.out_of_memory.take(control_groups);
    how.out_of_memory = limit.has_value();
    how.memory_limit = limit.value_or(0);
  }
  const auto free_port = find_free_port(context_.ports);
  how.free_port = free_port.ok() ? *free_port : std::uint16_t{0};
  unsaid_exit_ = how;
  standard_output_.worker_exited();
  standard_error_.worker_exited();
  changed_();
}

void Worker::order(ReaperOrder::Kind kind, int signal_number) {
  if (!reaper_) return;
  const ReaperOrder record{kind, signal_number};
  // A full queue means hundreds of unread orders: the reaper hangs, and one more would not help.
  [[maybe_unused]] const ssize_t sent =
      ::send(reaper_.get(), &record, sizeof(record), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void Worker::signal(int number) { order(ReaperOrder::Kind::signal, number); }

void Worker::stop(const std::string& reason, Duration grace, TimePoint now) {
  channel_.send_stop(reason);
  if (grace <= Duration::zero()) return kill();
  kill_at_ = std::min(kill_at_, now + grace);
  if (!can_answer()) return signal(SIGTERM);
  // After the signal the program would tell only of its end.
  if (question_) tell_activity({}, false);
  sigterm_at_ =
      std::min(sigterm_at_, now + std::min<Duration>(worker_link::kLastWordsTimeout, grace / 2));
  channel_.ask_activity(worker_link::Activity::kAtTheEnd);
}

void Worker::end_last_words() {
  if (std::exchange(sigterm_at_, kNever) != kNever) signal(SIGTERM);
}

bool Worker::can_answer() const {
  return state_ == State::running && channel_.initialised() && !is_stopped(pid_);
}

void Worker::kill() {
  kill_at_ = sigterm_at_ = kNever;
  was_killed_by_agent_ = true;
  order(ReaperOrder::Kind::kill);
  wake_reaper();
}

void Worker::wake_reaper() const {
  if (reaper_pid_ > 0) ::kill(reaper_pid_, SIGCONT);
}

void Worker::ask_activity(std::uint32_t id, TimePoint deadline) {
  if (state_ == State::failed || state_ == State::exited) return;
  question_ = id;
  answer_by_ = deadline;
  if (can_answer()) {
    channel_.ask_activity(id);
  } else {
    tell_activity({}, false);
  }
}

void Worker::on_activity(worker_link::Activity activity) {
  if (question_ == activity.id) return tell_activity(std::move(activity), true);
  if (activity.id != worker_link::Activity::kAtTheEnd) return;
  send_activity(std::move(activity), true);
  end_last_words();
}

void Worker::tell_activity(worker_link::Activity activity, bool answered) {
  activity.id = *question_;
  send_activity(std::move(activity), answered);
  question_.reset();
  answer_by_ = kNever;
}

void Worker::send_activity(worker_link::Activity activity, bool answered) {
  agent_link::WorkerActivity told;
  told.id = activity.id;
  told.generation = activity.generation;
  told.incarnation = incarnation_;
  told.process_state = pid_ == 0 ? '\0' : state_of(pid_);
  told.initialised = channel_.initialised();
  told.answered = answered;
  told.in_flight = std::move(activity.in_flight);
  told.last = std::move(activity.last);
  told.missing = std::move(activity.missing);
  context_.link.send(told.encode());
}

void Worker::on_time(TimePoint now) {
  if (now >= sigterm_at_) end_last_words();
  if (now >= kill_at_) kill();
  if (now >= answer_by_) tell_activity({}, false);
  const auto look = heartbeat_.look(now);
  if (look.ping) channel_.send_ping();
  if (!look.silent) return;
  heartbeat_.end();
  const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(heartbeat_.limit());
  problem(cat("gave no sign of life for ", limit.count(),
              " ms (--heartbeat-timeout): it was stopped or gets no processor time; killing it"));
  kill();
}

void Worker::excuse(TimePoint now) {
  if (heartbeat_.deadline() != kNever) heartbeat_.excuse(now);
}

void Worker::world(const HostWorld& world) {
  channel_.send_world(world.world.generation, world.world.effective, world.frame_for(incarnation_));
}

void Worker::credit(agent_link::Stream stream, std::uint64_t bytes) {
  (stream == agent_link::Stream::standard_output ? standard_output_ : standard_error_)
      .credit(bytes);
}

std::uint64_t Worker::renew_output() {
  return standard_output_.renew_window() + standard_error_.renew_window();
}

void Worker::use_window(agent_link::Stream stream, std::uint64_t bytes) {
  (stream == agent_link::Stream::standard_output ? standard_output_ : standard_error_)
      .use_window(bytes);
}

void Worker::tell_driver_gone(bool gone) {
  channel_.send_driver_gone({gone, context_.rendezvous.host, context_.rendezvous.port});
}

void Worker::end_output() {
  standard_output_.end_after_what_is_there();
  standard_error_.end_after_what_is_there();
}

bool Worker::settle() {
  if (unsaid_exit_ && !standard_output_.has_unsent() && !standard_error_.has_unsent()) {
    if (auto work = take_new_work()) {
      context_.link.send(agent_link::WorkReports{{{incarnation_, *std::move(work)}}}.encode());
    }
    context_.link.send_in_order(incarnation_, unsaid_exit_->encode());
    unsaid_exit_.reset();
  }
  const bool said_all = state_ == State::failed || (state_ == State::exited && !unsaid_exit_);
  return said_all && standard_output_.closed() && standard_error_.closed() && reaper_gone();
}

}  // namespace hvd::agent
