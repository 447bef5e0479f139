// What the job decides once something has happened, and the books that it keeps. The events are in
// driver/job/job.cpp.
#include <string_view>
#include <utility>

#include "base/text.h"
#include "driver/job/job.h"

namespace hvd::driver {
namespace {

constexpr std::size_t kMaxTroublesInReason = 3;

}  // namespace

// ---- decisions ----

void Job::fail(JobFailure failure, int exit_code) {
  if (decided()) return;
  failure_ = std::move(failure);
  failure_code_ = exit_code;
  const std::string reason = reason_of(*failure_);
  say(cat(reason, "; stopping the job"));
  begin_stop(reason);
}

std::string Job::reason_of(const JobFailure& failure) const {
  if (failure.rank >= 0) {
    return cat("rank ", failure.rank, " on ", failure.host, " ", failure.cause);
  }
  if (failure.hosts.size() > 1) {
    return cat(failure.hosts.size(), " of ", seated_, " hosts cannot take part; the first is ",
               failure.host, ": ", failure.cause);
  }
  if (failure.hosts.size() == 1) {
    return cat("host ", failure.host, " cannot take part: ", failure.cause);
  }
  return failure.host.empty() ? failure.cause : cat("host ", failure.host, ": ", failure.cause);
}

std::string Job::interrupt_text() const {
  std::string text = cat("interrupted by ", signal_text(interrupt_));
  const auto excluded = excluded_hosts();
  if (excluded.empty()) return text;
  text += excluded.size() == 1 ? "; one host had failed: "
                               : cat("; ", excluded.size(), " hosts had failed: ");
  std::vector<std::string> each;
  for (const auto& host : excluded) {
    if (each.size() == kMaxTroublesInReason) break;
    each.push_back(
        cat(host.name, " (", name_of(host.trouble.step), ": ", host.trouble.message, ")"));
  }
  text += join(each, ", ");
  if (each.size() < excluded.size()) text += cat(" and ", excluded.size() - each.size(), " more");
  return text;
}

void Job::fail_host(HostIndex host, std::string cause, Step step) {
  if (preparing()) {
    exclude(host, {step, std::move(cause), kOwnTrouble});
    return;
  }
  JobFailure failure;
  failure.host = hosts_[host].name;
  failure.cause = std::move(cause);
  fail(std::move(failure), kOwnTrouble);
}

void Job::fail_worker(const JobWorker& worker, std::string cause, int exit_code) {
  const auto& member = worker.member;
  fail(
      {member.rank, member.host, member.slot, member.incarnation, worker.pid, std::move(cause), {}},
      exit_code);
}

void Job::broken(HostIndex host, const std::string& what) {
  drop(host);
  if (state_ == JobState::closing || !is_needed(host)) {
    // The job's outcome stands: every worker has ended; or it does not depend on this host.
    warn(cat("the agent on host ", hosts_[host].name, " broke the protocol: ", what));
    return;
  }
  fail_host(host, cat("its agent broke the protocol: ", what), Step::start_agent);
}

void Job::check_completeness() {
  if (first_joined_ < 0 || first_absent_ < 0) return;
  fail_worker(workers_[static_cast<std::size_t>(first_absent_)],
              cat("exited with 0 without calling hvd::init, which rank ", first_joined_,
                  " has called: the world can never be complete"),
              kOwnTrouble);
}

void Job::begin_stop(const std::string& reason) {
  if (stop_has_begun()) return;
  move(JobState::stopping);
  state_deadline_ = now_ + options_.grace + options_.stop_margin;
  for (auto& worker : workers_) {
    if (worker.state == WorkerState::planned) end(worker, WorkerState::never_started);
  }
  for (HostIndex index = 0; index < hosts_.size(); ++index) {
    JobHost& host = hosts_[index];
    if (host.state == HostState::starting) {
      drop(index);
    } else if (host.state == HostState::ready) {
      host.deadline = kNever;
      if (host.live > 0) {
        actions_.emplace_back(action::StopWorkers{index, kEveryWorker, options_.grace, reason});
      }
    }
  }
}

void Job::kill_all() {
  move(JobState::killing);
  state_deadline_ = now_ + options_.kill_timeout;
  for (HostIndex index = 0; index < hosts_.size(); ++index) {
    const JobHost& host = hosts_[index];
    if (host.state == HostState::ready && host.live > 0) {
      actions_.emplace_back(action::KillWorkers{index, kEveryWorker});
    }
  }
}

void Job::drop(HostIndex host) {
  move(host, HostState::dropping);
  hosts_[host].deadline = now_ + options_.drop_timeout;
  actions_.emplace_back(action::DropAgent{host});
}

void Job::drop_all(const std::string& why, bool only_with_workers) {
  std::vector<std::string> dropped;
  for (HostIndex index = 0; index < hosts_.size(); ++index) {
    if (!believed(index) || (only_with_workers && hosts_[index].live == 0)) continue;
    dropped.push_back(hosts_[index].name);
    drop(index);
  }
  if (!dropped.empty())
    warn(cat(why, ": killing ", dropped.size() == 1 ? "the agent on " : "the agents on ",
             names_text(dropped)));
}

void Job::leave(HostIndex index) {
  JobHost& host = hosts_[index];
  move(index, HostState::gone);
  host.deadline = kNever;
  --agents_;
  lose_workers(index);
}

void Job::lose_workers(HostIndex host) {
  for (const std::size_t index : hosts_[host].workers) {
    JobWorker& worker = workers_[index];
    if (worker.state != WorkerState::planned && !has_ended(worker.state)) {
      end(worker, WorkerState::lost);
    }
  }
}

void Job::settle() {
  if (state_ == JobState::planned) {
    if (interrupt_ == 0) return;
    move(JobState::finished);
    actions_.emplace_back(action::Finish{128 + interrupt_, std::nullopt,
                                         cat("interrupted by ", signal_text(interrupt_))});
    return;
  }
  if (state_ == JobState::preparing && unanswered_ == 0) {
    if (excluded_ > 0) {
      fail_preparation();
    } else if (plan()) {
      move(JobState::choosing);
      state_deadline_ = now_ + options_.start_timeout;
      actions_.emplace_back(action::ChooseAddresses{});
    }
  }
  init_watch_.set_waiting(first_joined_ >= 0 && absent_ > 0 && unstarted_ == 0 && !stop_has_begun(),
                          now_);
  if (state_ == JobState::choosing && excluded_ == seated_) fail_preparation();
  if (state_ == JobState::starting && unstarted_ == 0) {
    move(JobState::running);
    say(workers_.size() == 1 ? "the worker runs" : cat("all ", workers_.size(), " workers run"));
  }
  if (state_ >= JobState::starting && state_ < JobState::closing && live_ == 0) {
    move(JobState::closing);
    state_deadline_ = kNever;
    for (HostIndex index = 0; index < hosts_.size(); ++index) {
      if (hosts_[index].state != HostState::ready) continue;
      shut_down(index);
    }
  }
  if (state_ == JobState::closing && agents_ == 0) {
    move(JobState::finished);
    action::Finish finish;
    if (failure_) {
      finish.exit_code = failure_code_;
      finish.failure = failure_;
      finish.reason = reason_of(*failure_);
    } else if (interrupt_ != 0) {
      finish.exit_code = 128 + interrupt_;
      finish.reason = interrupt_text();
    } else {
      finish.reason = workers_.size() == 1 ? "the worker exited with 0"
                                           : cat("all ", workers_.size(), " workers exited with 0");
    }
    actions_.emplace_back(std::move(finish));
  }
}

// ---- bookkeeping ----

bool Job::believed(HostIndex host) const {
  const HostState state = hosts_[host].state;
  return state == HostState::starting || state == HostState::ready || state == HostState::closing;
}

// The worker that an agent speaks of, if there is one there and the agent may speak.
JobWorker* Job::worker_of(HostIndex host, Incarnation incarnation, std::string_view what) {
  if (!believed(host)) return nullptr;
  if (hosts_[host].state == HostState::starting) {
    broken(host, cat("it reported a worker as ", what, " before it was ready"));
    return nullptr;
  }
  const std::size_t index = index_of(incarnation);
  if (index == workers_.size() || workers_[index].host != host) {
    broken(host, cat("it reported incarnation ", incarnation, " as ", what,
                     ", which was never started there"));
    return nullptr;
  }
  return &workers_[index];
}

void Job::end(JobWorker& worker, WorkerState state) {
  JobHost& host = hosts_[worker.host];
  if (worker.state == WorkerState::planned || worker.state == WorkerState::launching) {
    --unstarted_;
    if (--host.unstarted == 0 && host.state == HostState::ready) host.deadline = kNever;
  }
  move(worker, state);
  if (!worker.joined) --absent_;
  --host.live;
  --live_;
}

void Job::move(JobState to) {
  check_move(state_, to);
  state_ = to;
}

void Job::move(HostIndex host, HostState to) {
  const HostState from = hosts_[host].state;
  check_move(from, to);
  hosts_[host].state = to;
  if (from == HostState::starting) --unanswered_;
  if (to == HostState::dropping || to == HostState::gone) heartbeats_.forget(host);
}

void Job::move(JobWorker& worker, WorkerState to) {
  check_move(worker.state, to);
  worker.state = to;
}

}  // namespace hvd::driver
