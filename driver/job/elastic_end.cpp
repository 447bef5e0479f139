// The end of an elastic job: declared, failed or asked for.
#include <algorithm>
#include <utility>

#include "base/text.h"
#include "driver/job/elastic_job.h"

namespace hvd::driver {
namespace {

constexpr int kMaxDecisions = 4;  // in one step; each follows from the one before

}  // namespace

// ---- declared ----

void ElasticJob::begin_to_end() {
  if (state_ != ElasticState::training && state_ != ElasticState::waiting) return;
  move(ElasticState::ending);
  tell_failures({});
  state_deadline_ = kNever;
  proposed_.clear();
  say("a worker says that the work is done: the job ends with the others");
  for (const std::size_t index : std::set<std::size_t>(live_)) {
    const Standing standing = workers_[index].standing;
    if (standing == Standing::coming || standing == Standing::warm) {
      let_go(index, "the work is done");
    }
  }
}

void ElasticJob::go_on_if_nobody_is_done() {
  decide_within(kAtOnce);
  if (state_ != ElasticState::ending) return;
  const bool any_well = std::any_of(workers_.begin(), workers_.end(),
                                    [](const ElasticWorker& one) { return one.well; });
  // Those, too, without whom the others formed a world to finish.
  const bool any_done = std::any_of(live_.begin(), live_.end(), [&](std::size_t index) {
    return workers_[index].state == WorkerState::done && workers_[index].leaves.empty();
  });
  if (!any_well && !any_done) move(ElasticState::training);
}

// ---- failed ----

void ElasticJob::fail(JobFailure failure, int exit_code) {
  if (stop_has_begun()) return;
  tell_failures({});
  failure_ = std::move(failure);
  failure_code_ = exit_code;
  const std::string reason = reason_of(*failure_);
  say(cat(reason, "; stopping the job"));
  begin_stop(reason);
}

// With the first of the failures that led here.
void ElasticJob::fail_with_cause(const std::string& why) {
  JobFailure failure = cause_.value_or(JobFailure());
  for (const std::string& more : {why, state_lost_with_}) {
    if (!more.empty()) failure.cause += failure.cause.empty() ? more : cat("; ", more);
  }
  fail(std::move(failure), cause_ ? cause_code_ : kOwnTrouble);
}

void ElasticJob::fail_with(const ElasticWorker& first, const std::string& why) {
  const auto& member = first.member;
  fail({member.rank,
        member.host,
        member.slot,
        member.incarnation,
        first.pid,
        cat(first.how, "; ", why),
        {}},
       first.exit_code);
}

std::string ElasticJob::reason_of(const JobFailure& failure) const {
  if (failure.hosts.size() > 1) {
    return cat("none of ", failure.hosts.size(), " hosts can take part; the first is ",
               failure.host, ": ", failure.cause);
  }
  if (failure.slot >= 0) {
    const std::string who = failure.rank >= 0 ? cat("rank ", failure.rank, " on ", failure.host)
                                              : cat(failure.host, "#", failure.slot);
    return cat(who, " ", failure.cause);
  }
  return failure.host.empty() ? failure.cause : cat("host ", failure.host, ": ", failure.cause);
}

// ---- asked for ----

void ElasticJob::on(const event::StopRequested& event) {
  ++stop_requests_;
  const std::string signal = signal_text(event.signal_number);
  switch (state_) {
    case ElasticState::planned:
      interrupt_ = event.signal_number;
      break;
    case ElasticState::gathering:
    case ElasticState::training:
    case ElasticState::waiting:
    case ElasticState::ending:
      interrupt_ = event.signal_number;
      notice(stopping_text(event.signal_number, live_.size(), options_.job.grace));
      begin_stop(cat("hvdrun was interrupted by ", signal));
      break;
    case ElasticState::stopping:
      if (stop_requests_ == 1) {
        notice(cat(signal, ": the job is stopping already; a second signal kills at once"));
      } else {
        notice(cat("a second signal, ", signal, ": killing what is left"));
        kill_all();
      }
      break;
    case ElasticState::killing:
    case ElasticState::closing:
      if (stop_requests_ > 1) drop_all(cat(signal, " once more"), false);
      break;
    case ElasticState::finished:
      break;
  }
}

void ElasticJob::begin_stop(const std::string& reason) {
  tell_failures({});
  move(ElasticState::stopping);
  state_deadline_ = now_ + options_.job.grace + options_.job.stop_margin;
  decide_at_ = kNever;
  for (const std::size_t index : std::exchange(launches_, {})) {
    end(index, WorkerState::never_started);
  }
  for (const std::size_t index : live_) set_deadline(index, kNever);
  for (HostIndex index = 0; index < hosts_.size(); ++index) {
    ElasticHost& host = hosts_[index];
    if (host.state == HostState::starting) {
      drop(index);
    } else if (host.state == HostState::ready) {
      host.deadline = kNever;
      if (host.live > 0) {
        actions_.emplace_back(action::StopWorkers{index, kEveryWorker, options_.job.grace, reason});
      }
    }
  }
}

void ElasticJob::kill_all() {
  move(ElasticState::killing);
  state_deadline_ = now_ + options_.job.kill_timeout;
  for (HostIndex index = 0; index < hosts_.size(); ++index) {
    if (hosts_[index].state == HostState::ready && hosts_[index].live > 0) {
      actions_.emplace_back(action::KillWorkers{index, kEveryWorker});
    }
  }
}

// ---- time, and what follows by itself ----

void ElasticJob::on(const event::Tick& /*event*/) {
  on_host_deadlines();
  on_silence();
  on_worker_deadlines();
  on_init_watch();
  on_state_deadline();
}

void ElasticJob::on_state_deadline() {
  if (state_deadline_ > now_) return;
  state_deadline_ = kNever;
  if (state_ == ElasticState::gathering || state_ == ElasticState::waiting) {
    JobFailure failure;
    failure.cause = cat("there was not enough room for ", seconds_text(options_.elastic_timeout),
                        " (--elastic-timeout): ", short_text());
    if (state_ == ElasticState::waiting && cause_) {
      failure.cause += cat("; the first failure was that ", reason_of(*cause_));
    }
    fail(std::move(failure), kOwnTrouble);
  } else if (state_ == ElasticState::stopping) {
    warn(cat(live_.size(), live_.size() == 1 ? " worker is" : " workers are", " still there ",
             seconds_text(options_.job.stop_margin), " after the end of the grace; killing"));
    kill_all();
  } else if (state_ == ElasticState::killing) {
    drop_all(cat(live_.size(), live_.size() == 1 ? " worker is" : " workers are", " still there ",
                 seconds_text(options_.job.kill_timeout), " after SIGKILL"),
             true);
  }
}

void ElasticJob::settle() {
  if (state_ == ElasticState::planned) {
    if (interrupt_ == 0) return;
    move(ElasticState::finished);
    actions_.emplace_back(action::Finish{128 + interrupt_, std::nullopt,
                                         cat("interrupted by ", signal_text(interrupt_))});
    return;
  }
  init_watch_.set_waiting(anybody_joined_ && !absent_.empty() && runs(), now_);
  if (next_rest_ <= now_) decide_within(kAtOnce);  // a host has rested
  for (int round = 0; round < kMaxDecisions && decide_at_ <= now_; ++round) decide();
  next_rest_ = budget_.next_end(now_);
  if (runs() && live_.empty()) {
    const auto ended_well = [&](const WorldMember& member) {
      return worker(member.incarnation).quiet || worker(member.incarnation).well;
    };
    const auto& members = effective_.members;
    const bool all = std::all_of(members.begin(), members.end(), ended_well);
    const bool any = std::any_of(workers_.begin(), workers_.end(),
                                 [](const ElasticWorker& one) { return one.well; });
    if (state_ == ElasticState::ending ? any : all) {
      move(ElasticState::closing);
    } else if (state_ == ElasticState::ending) {
      fail_with_cause("no worker of the world is left");
    }
  }
  if ((state_ == ElasticState::stopping || state_ == ElasticState::killing) && live_.empty()) {
    move(ElasticState::closing);
  }
  if (state_ == ElasticState::closing) {
    state_deadline_ = kNever;
    for (HostIndex index = 0; index < hosts_.size(); ++index) {
      if (hosts_[index].state == HostState::starting) drop(index);
      if (hosts_[index].state != HostState::ready) continue;
      move(index, HostState::closing);
      hosts_[index].deadline = now_ + options_.job.close_timeout;
      actions_.emplace_back(action::ShutDownAgent{index});
    }
    if (agents_ == 0) finish();
  }
}

void ElasticJob::finish() {
  move(ElasticState::finished);
  action::Finish finish;
  if (failure_) {
    finish.exit_code = failure_code_;
    finish.failure = failure_;
    finish.reason = reason_of(*failure_);
  } else if (interrupt_ != 0) {
    finish.exit_code = 128 + interrupt_;
    finish.reason = cat("interrupted by ", signal_text(interrupt_));
  } else {
    finish.reason = cat("the work is done; the last world had ", effective_.members.size(),
                        effective_.members.size() == 1 ? " worker" : " workers");
  }
  actions_.emplace_back(std::move(finish));
}

}  // namespace hvd::driver
