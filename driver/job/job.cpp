#include "driver/job/job.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/text.h"

namespace hvd::driver {

std::size_t Job::index_of(Incarnation incarnation) const {
  const Incarnation index = incarnation - first_incarnation_;  // huge if it is below
  return index < workers_.size() ? static_cast<std::size_t>(index) : workers_.size();
}

std::vector<std::string> Job::host_names() const {
  std::vector<std::string> names;
  for (const auto& host : hosts_) names.push_back(host.name);
  return names;
}

WorldDocument Job::world() const {
  WorldDocument world;
  world.job_id = options_.job_id;
  world.generation = generation_;
  world.state = WorldState::effective;
  for (const auto& worker : workers_) world.members.push_back(worker.member);
  return world;
}

std::vector<Action> Job::step(const Event& event, TimePoint now) {
  if (state_ == JobState::finished) return {};
  now_ = now;
  actions_.clear();
  std::visit([this](const auto& value) { on(value); }, event);
  settle();
  return std::exchange(actions_, {});
}

TimePoint Job::next_deadline() const {
  if (state_ == JobState::finished) return kNever;
  TimePoint next = std::min({state_deadline_, heartbeats_.next_look(), init_watch_.next_look()});
  for (const auto& host : hosts_) next = std::min(next, host.deadline);
  return next;
}

void Job::on(const event::Launched& event) {
  JobWorker* const worker = worker_of(event.host, event.incarnation, "launched");
  if (worker == nullptr) return;
  if (worker->state != WorkerState::launching || event.pid <= 0) {
    broken(event.host, cat("it reported the start of ", worker->member.worker(), ", which is ",
                           name_of(worker->state), ", with pid ", event.pid));
    return;
  }
  move(*worker, WorkerState::running);
  worker->pid = event.pid;
  for (const WorkerState said : std::exchange(worker->said_early, {})) hear(*worker, said);
  JobHost& host = hosts_[event.host];
  --unstarted_;
  if (--host.unstarted == 0 && host.state == HostState::ready) host.deadline = kNever;
}

void Job::on(const event::LaunchFailed& event) {
  JobWorker* const worker = worker_of(event.host, event.incarnation, "not launched");
  if (worker == nullptr) return;
  if (worker->state != WorkerState::launching) {
    broken(event.host, cat("it reported that it could not start ", worker->member.worker(),
                           ", which is ", name_of(worker->state)));
    return;
  }
  end(*worker, WorkerState::never_started);
  fail_worker(*worker, cat("could not be started: ", event.message),
              exit_code_of_failed_start(event.error_number));
}

// The next two repeat what a worker said on its own descriptor. A worker may say it twice, or out
// of turn, or not know what it says: that is no reason to distrust its agent.
void Job::on(const event::Initialised& event) {
  JobWorker* const worker = worker_of(event.host, event.incarnation, "initialised");
  if (worker != nullptr) hear(*worker, WorkerState::initialised);
}

void Job::on(const event::Done& event) {
  JobWorker* const worker = worker_of(event.host, event.incarnation, "done");
  if (worker != nullptr) hear(*worker, WorkerState::done);
}

void Job::hear(JobWorker& worker, WorkerState said) {
  if (worker.state == WorkerState::launching) {
    if (worker.said_early.size() < kMaxSaidEarly) worker.said_early.push_back(said);
    return;
  }
  const bool in_turn = said == WorkerState::done ? worker.state == WorkerState::initialised
                                                 : worker.state == WorkerState::running ||
                                                       worker.state == WorkerState::done;
  if (!in_turn) return;
  move(worker, said);
  if (said != WorkerState::initialised || std::exchange(worker.joined, true)) return;
  --absent_;
  if (first_joined_ < 0) first_joined_ = worker.member.rank;
  check_completeness();
}

void Job::on(const event::Exited& event) {
  JobWorker* const worker = worker_of(event.host, event.incarnation, "exited");
  if (worker == nullptr) return;
  const WorkerState before = worker->state;
  const bool runs = before == WorkerState::running || before == WorkerState::initialised ||
                    before == WorkerState::done;
  const bool possible = event.exit_code >= 0 && event.exit_code <= kMaxExitCode &&
                        event.signal_number >= 0 && event.signal_number <= kMaxSignal;
  if (!runs || !possible) {
    broken(event.host,
           cat("it reported the end of ", worker->member.worker(), ", which is ", name_of(before),
               ", with code ", event.exit_code, " and signal ", event.signal_number));
    return;
  }
  end(*worker, WorkerState::exited);
  const std::string how = exit_text(event);
  if (event.signal_number != 0) {
    fail_worker(*worker, how, 128 + event.signal_number);
  } else if (event.exit_code != 0) {
    fail_worker(*worker, how, event.exit_code);
  } else if (before == WorkerState::initialised) {
    fail_worker(*worker,
                "exited with 0 without saying that it was done: it called hvd::init, and ended "
                "before hvd::shutdown or the normal end of its program",
                kOwnTrouble);
  } else if (!worker->joined) {
    if (first_absent_ < 0) first_absent_ = worker->member.rank;
    check_completeness();
  }
}

void Job::on(const event::StopRequested& event) {
  ++stop_requests_;
  const std::string signal = signal_text(event.signal_number);
  switch (state_) {
    case JobState::planned:
      interrupt_ = event.signal_number;
      break;
    case JobState::preparing:
    case JobState::choosing:
      interrupt_ = event.signal_number;
      notice(cat(interrupt_text(), ": no worker was started yet; giving up"));
      begin_stop(cat("hvdrun was interrupted by ", signal));
      break;
    case JobState::starting:
    case JobState::running:
      interrupt_ = event.signal_number;
      notice(stopping_text(event.signal_number, live_, options_.grace));
      begin_stop(cat("hvdrun was interrupted by ", signal));
      break;
    case JobState::stopping:
      if (stop_requests_ == 1) {
        notice(cat(signal, ": the job is stopping already; a second signal kills at once"));
      } else {
        notice(cat("a second signal, ", signal, ": killing what is left"));
        kill_all();
      }
      break;
    case JobState::killing:
    case JobState::closing:
      if (stop_requests_ > 1) drop_all(cat(signal, " once more"), false);
      break;
    case JobState::finished:
      break;
  }
}

void Job::on(const event::Tick& /*event*/) {
  on_host_deadlines();
  on_silence();
  on_state_deadline();
  on_init_watch();
}

// ---- some wait in hvd::init() for others ----

void Job::on_init_watch() {
  const auto due = init_watch_.look(now_);
  if (due == InitWatch::Due::nothing || stop_has_begun()) return;
  std::size_t asked = 0;
  for (const auto& worker : workers_) {
    if (worker.state != WorkerState::running || worker.joined) continue;
    if (due == InitWatch::Due::over) {
      fail_worker(worker,
                  cat("did not call hvd::init within ", seconds_text(options_.init_timeout),
                      " (--init-timeout), and rank ", first_joined_, " waits for it there"),
                  kOwnTrouble);
      return;
    }
    if (asked++ == InitWatch::kNamed) break;
    actions_.emplace_back(action::DescribeWorker{worker.host, worker.member.incarnation});
  }
}

void Job::on(const event::Described& event) {
  const JobWorker* const worker = worker_of(event.host, event.incarnation, "described");
  if (worker == nullptr || worker->state != WorkerState::running || worker->joined) return;
  if (stop_has_begun() || first_joined_ < 0) return;
  warn(cat("rank ", worker->member.rank, " on ", worker->member.host,
           absent_text(event.text, first_joined_, static_cast<std::size_t>(absent_),
                       init_watch_.waited(now_), options_.init_timeout)));
}

void Job::on_state_deadline() {
  if (state_deadline_ > now_) return;
  state_deadline_ = kNever;
  if (preparing()) {
    on_preparation_deadline();
  } else if (state_ == JobState::stopping) {
    warn(cat(live_ranks_text(), " still there ", seconds_text(options_.stop_margin),
             " after the end of the grace; killing"));
    kill_all();
  } else if (state_ == JobState::killing) {
    drop_all(cat(live_ranks_text(), " still there ", seconds_text(options_.kill_timeout),
                 " after SIGKILL"),
             true);
  }
}

}  // namespace hvd::driver
