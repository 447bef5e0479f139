// Workers of an elastic job: they come, get warm, are members, leave or fail.
#include <utility>

#include "base/text.h"
#include "driver/job/elastic_job.h"

namespace hvd::driver {
namespace {

constexpr std::chrono::seconds kOneCause{10};  // failures that follow each other have one

}  // namespace

// The worker that an agent speaks of, if there is one there and the agent may speak.
ElasticWorker* ElasticJob::worker_of(HostIndex host, Incarnation incarnation,
                                     std::string_view what) {
  if (!believed(host)) return nullptr;
  const std::size_t index = index_of(incarnation);
  if (hosts_[host].state == HostState::starting) {
    broken(host, cat("it reported a worker as ", what, " before it was ready"));
  } else if (index == workers_.size() || workers_[index].host != host) {
    broken(host, cat("it reported incarnation ", incarnation, " as ", what,
                     ", which was never started there"));
  } else {
    return &workers_[index];
  }
  return nullptr;
}

// ---- they come ----

void ElasticJob::launch(const SlotPlace& place, HostIndex host, bool as_member) {
  const std::size_t index = workers_.size();
  ElasticWorker worker;
  // No world has it yet: it chooses its device by its slot.
  worker.member.rank = worker.member.cross_rank = worker.member.cross_size = -1;
  worker.member.local_rank = place.slot;
  worker.member.local_size = place.slots;
  worker.member.host = place.host;
  worker.member.slot = place.slot;
  worker.member.incarnation = index + 1;
  worker.member.address = hosts_[host].address;
  worker.host = host;
  workers_.push_back(std::move(worker));
  live_.insert(index);
  hosts_[host].workers.push_back(index);
  ++hosts_[host].live;
  ++hosts_[host].unstarted;
  common_cause_.launched(index + 1);
  move(index, WorkerState::launching);
  workers_[index].launch_by = now_ + options_.job.start_timeout;
  renew_deadline(index);
  // Of a member the action follows when the world is known; of others when the survivors know
  // theirs.
  if (!as_member) launches_.push_back(index);
}

void ElasticJob::on(const event::Launched& event) {
  const ElasticWorker* const worker = worker_of(event.host, event.incarnation, "launched");
  if (worker == nullptr) return;
  const std::size_t index = index_of(event.incarnation);
  if (worker->state != WorkerState::launching || event.pid <= 0) {
    broken(event.host, cat("it reported the start of ", worker->member.worker(), ", which is ",
                           name_of(worker->state), ", with pid ", event.pid));
    return;
  }
  move(index, WorkerState::running);
  --hosts_[event.host].unstarted;
  workers_[index].pid = event.pid;
  workers_[index].launch_by = kNever;
  if (worker->standing != Standing::out) renew_deadline(index);
  for (const WorkerState said : std::exchange(workers_[index].said_early, {})) hear(index, said);
  const ElasticWorker& one = workers_[index];
  if (one.ready_early && one.state == WorkerState::initialised &&
      one.standing == Standing::coming) {
    hear_ready(index);
  }
}

void ElasticJob::on(const event::LaunchFailed& event) {
  const ElasticWorker* const worker = worker_of(event.host, event.incarnation, "not launched");
  if (worker == nullptr) return;
  if (worker->state != WorkerState::launching) {
    broken(event.host, cat("it reported that it could not start ", worker->member.worker(),
                           ", which is ", name_of(worker->state)));
    return;
  }
  const std::size_t index = index_of(event.incarnation);
  worker_failed(index, cat("could not be started: ", event.message),
                exit_code_of_failed_start(event.error_number), true);
}

// What a worker says on its own descriptor may be said twice, or out of turn, or be wrong: that is
// no reason to distrust its agent.
void ElasticJob::on(const event::Initialised& event) {
  if (worker_of(event.host, event.incarnation, "initialised") == nullptr) return;
  hear(index_of(event.incarnation), WorkerState::initialised);
}

void ElasticJob::on(const event::Done& event) {
  if (worker_of(event.host, event.incarnation, "done") == nullptr) return;
  hear(index_of(event.incarnation), WorkerState::done);
}

void ElasticJob::hear(std::size_t index, WorkerState said) {
  const ElasticWorker& worker = workers_[index];
  if (worker.state == WorkerState::launching) {
    auto& early = workers_[index].said_early;
    if (early.size() < kMaxSaidEarly) early.push_back(said);
    return;
  }
  const bool in_turn = said == WorkerState::done ? worker.state == WorkerState::initialised
                                                 : worker.state == WorkerState::running ||
                                                       worker.state == WorkerState::done;
  if (!in_turn) return;
  // Only a member that takes its word back makes the job go on; who comes late does not.
  const bool is_back = worker.state == WorkerState::done && worker.standing == Standing::member;
  move(index, said);
  if (said == WorkerState::initialised) {
    workers_[index].joined = true;
    // A member needs nothing else to join; one that comes still has to get warm.
    if (worker.standing == Standing::member) common_cause_.joined(worker.member.incarnation);
    if (!std::exchange(anybody_joined_, true)) notice_quiet_ones();
    if (is_back) go_on_if_nobody_is_done();
    decide_within(kAtOnce);
  } else if (worker.standing == Standing::member) {
    // Else it may be done because it was told to go, or has left at a commit of which we have not
    // heard.
    if (!worker.keeps_leaving && !worker.may_have_left) begin_to_end();
    if (state_ == ElasticState::ending) {
      last_done_ = now_;
      decide_within(options_.leave_gather);
    }
  } else if (worker.standing == Standing::coming || worker.standing == Standing::warm) {
    expect_exit(index);  // whatever made it think so, it is of no use any more
    decide_within(kAtOnce);
  }
}

void ElasticJob::on(const event::WorkerReady& event) {
  const ElasticWorker* const worker = worker_of(event.host, event.incarnation, "ready");
  if (worker == nullptr || worker->standing != Standing::coming) return;
  const std::size_t index = index_of(event.incarnation);
  if (worker->state == WorkerState::launching) {
    workers_[index].ready_early = true;
  } else if (worker->state == WorkerState::initialised) {
    hear_ready(index);
  }
}

void ElasticJob::hear_ready(std::size_t index) {
  const ElasticWorker& worker = workers_[index];
  move(index, Standing::warm);
  common_cause_.joined(worker.member.incarnation);
  say(cat(worker.member.worker(), " is ready to join"));
  if (joiners_due_ == kNever) joiners_due_ = now_ + options_.join_gather;
  decide_within(kAtOnce);
}

// ---- they go ----

void ElasticJob::on(const event::LeaveRequested& event) {
  const ElasticWorker* const worker = worker_of(event.host, event.incarnation, "leaving");
  if (worker == nullptr || has_ended(worker->state) || worker->standing == Standing::out) return;
  const std::size_t index = index_of(event.incarnation);
  const std::string why = cat(worker->member.worker(), " was told to go");
  if (worker->standing == Standing::member) {
    ask_to_leave(index, why, true);
  } else {
    let_go(index, why);
  }
}

void ElasticJob::ask_to_leave(std::size_t index, std::string why, bool for_good) {
  ElasticWorker& worker = workers_[index];
  worker.keeps_leaving = worker.keeps_leaving || for_good;
  if (!worker.leaves.empty()) return;
  say(cat(why, ": ", worker.member.worker(), " leaves at the next commit"));
  worker.leaves = std::move(why);
  worker.leave_by = now_ + options_.leave_grace;
  renew_deadline(index);
  decide_within(kAtOnce);
}

void ElasticJob::let_go(std::size_t index, const std::string& why) {
  const ElasticWorker& worker = workers_[index];
  move(index, Standing::out);
  set_deadline(index, kNever);
  decide_within(options_.loss_gather);
  if (hosts_[worker.host].state != HostState::ready) return;
  actions_.emplace_back(
      action::StopWorkers{worker.host, worker.member.incarnation, options_.job.grace, why});
  set_deadline(index, now_ + options_.job.grace + options_.job.stop_margin);
}

// It knows by itself that it is out, and ends.
void ElasticJob::expect_exit(std::size_t index) {
  move(index, Standing::out);
  set_deadline(index, now_ + options_.leave_grace);
}

void ElasticJob::on_worker_deadlines() {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now_) {
    const std::size_t index = deadlines_.begin()->second;
    set_deadline(index, kNever);
    const ElasticWorker& worker = workers_[index];
    const std::string name = worker.member.worker();
    if (worker.standing == Standing::out) {
      if (hosts_[worker.host].state != HostState::ready) continue;
      if (std::exchange(workers_[index].killed, true)) {
        broken(worker.host, cat("it did not end ", name, " within ",
                                seconds_text(options_.job.kill_timeout), " after SIGKILL"));
        continue;
      }
      // Its agent has killed it long ago, or was never asked to.
      warn(cat(name, " did not end by itself; killing it"));
      actions_.emplace_back(action::KillWorkers{worker.host, worker.member.incarnation});
      set_deadline(index, now_ + options_.job.kill_timeout);
    } else if (worker.launch_by <= now_) {
      // An agent that cannot start anything is of no use, and what it may still start is in the
      // way.
      broken(worker.host, cat("it did not start ", name, " within ",
                              seconds_text(options_.job.start_timeout), " (--start-timeout)"));
    } else if (!worker.leaves.empty()) {
      warn(cat(name, " came to no commit within ", seconds_text(options_.leave_grace), " (",
               worker.leaves, "); the others go on without it"));
      let_go(index, worker.leaves);
    }
  }
}

// ---- they end ----

void ElasticJob::on(const event::Exited& event) {
  const ElasticWorker* const found = worker_of(event.host, event.incarnation, "exited");
  if (found == nullptr) return;
  const std::size_t index = index_of(event.incarnation);
  ElasticWorker& worker = workers_[index];
  const WorkerState before = worker.state;
  const bool runs = before == WorkerState::running || before == WorkerState::initialised ||
                    before == WorkerState::done;
  const bool possible = event.exit_code >= 0 && event.exit_code <= kMaxExitCode &&
                        event.signal_number >= 0 && event.signal_number <= kMaxSignal;
  if (!runs || !possible) {
    broken(event.host,
           cat("it reported the end of ", worker.member.worker(), ", which is ", name_of(before),
               ", with code ", event.exit_code, " and signal ", event.signal_number));
    return;
  }
  const std::string how = exit_text(event);
  const bool well = event.exit_code == 0 && event.signal_number == 0;
  if (stop_has_begun()) {
    end(index, WorkerState::exited);
  } else if (worker.standing == Standing::out) {
    end(index, WorkerState::exited);
    workers_[index].well = well && before == WorkerState::done && state_ == ElasticState::ending;
    // Who was stopped ends by the signal.
    if (!well && event.signal_number != 15) say(cat(worker.member.worker(), ", which left, ", how));
    decide_within(kAtOnce);
  } else if (event.signal_number != 0) {
    worker_failed(index, how, 128 + event.signal_number, !comes_from_outside(event.signal_number));
  } else if (event.exit_code != 0) {
    worker_failed(index, how, event.exit_code, true);
  } else if (state_ != ElasticState::ending && worker.standing == Standing::member &&
             (!worker.leaves.empty() || worker.may_have_left)) {
    end(index, WorkerState::exited);
    worker.well = before == WorkerState::done;
    worker.left_at = now_;
    decide_within(kAtOnce);
  } else if (before == WorkerState::done && worker.standing == Standing::member) {
    end(index, WorkerState::exited);
    worker.well = true;
  } else if (before == WorkerState::running && !anybody_joined_) {
    end(index, WorkerState::exited);
    worker.quiet = true;
  } else {
    worker_failed(index,
                  worker.joined
                      ? "exited with 0 without saying that it was done: it called hvd::init, and "
                        "ended before hvd::shutdown or the normal end of its program"
                      : "exited with 0 without calling hvd::init, which others have called",
                  kOwnTrouble, true);
  }
}

// Somebody has called hvd::init: who ended well before and never did has left a hole.
void ElasticJob::notice_quiet_ones() {
  for (std::size_t index = 0; index < workers_.size(); ++index) {
    if (!std::exchange(workers_[index].quiet, false)) continue;
    const std::string how = "exited with 0 without calling hvd::init, which others have called";
    workers_[index].how = how;
    note_cause(workers_[index], how, kOwnTrouble);
    warn(cat(workers_[index].member.worker(), " ", how));
    decide_within(options_.loss_gather);
  }
}

// The first of the failures that follow each other is what a person wants to know.
void ElasticJob::note_cause(const ElasticWorker& worker, const std::string& how, int exit_code) {
  const bool follows = cause_ && now_ - last_failure_ <= kOneCause;
  last_failure_ = now_;
  if (follows) return;
  const auto& member = worker.member;
  cause_ = {member.rank, member.host, member.slot, member.incarnation, worker.pid, how, {}};
  cause_code_ = exit_code;
}

void ElasticJob::worker_failed(std::size_t index, const std::string& how, int exit_code,
                               bool by_itself) {
  const ElasticWorker& worker = workers_[index];
  const std::string name = worker.member.worker();
  const bool was_member = worker.standing == Standing::member;
  const bool never_ran = worker.state == WorkerState::launching;
  const bool wanted = worker.standing != Standing::out;
  std::string fault;
  const bool leaves = !worker.leaves.empty();
  if (by_itself && wanted && !leaves && !stop_has_begun()) {
    const std::size_t world = effective_.members.size();
    fault = common_cause_.failed({worker.member.incarnation, worker.member.host, how}, world,
                                 found_ ? found_->size() : 0, now_);
  }
  end(index, never_ran ? WorkerState::never_started : WorkerState::exited);
  workers_[index].how = how;
  decide_within(was_member ? options_.loss_gather : kAtOnce);
  if (stop_has_begun() || !wanted) return;
  note_cause(worker, how, exit_code);
  const bool at_the_end = state_ == ElasticState::ending;
  if (!fault.empty() || (at_the_end && by_itself && was_member)) {
    fail_with_cause(fault);
    return;
  }
  if (at_the_end) {
    warn(cat(name, " ", how, " while the job was ending"));
    return;
  }
  if (leaves) {
    warn(cat(name, " ", how, " before it could leave"));
    return;
  }
  const TimePoint until =
      budget_.worker_failed(worker.member.host, worker.member.slot, now_, random());
  if (until <= now_) {
    warn(cat(name, " ", how, "; its slot is started again"));
    return;
  }
  warn(cat(name, " ", how, "; its host ", rest_text(until)));
  if (options_.budget.policy == FailurePolicy::slot) return;
  for (const std::size_t other : std::vector<std::size_t>(hosts_[worker.host].workers)) {
    if (live_.count(other) == 0 || workers_[other].standing == Standing::out) continue;
    let_go(other, cat("host ", worker.member.host, " rests (--failure-policy host)"));
  }
}

}  // namespace hvd::driver
