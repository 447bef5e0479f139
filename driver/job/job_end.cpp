// The end of an elastic job: declared, failed or asked for.
#include <algorithm>
#include <csignal>
#include <set>
#include <utility>

#include "base/clock.h"
#include "base/machine/child_process.h"
#include "base/text.h"
#include "driver/job/job.h"

namespace hvd::driver {
namespace {

constexpr int kMaxDecisions = 4;  // in one step; each follows from the one before

}  // namespace

// ---- declared ----

void Job::begin_to_end(const std::string& why) {
  if (state_ != JobState::running && state_ != JobState::waiting) return;
  move(JobState::ending);
  tell_failures({});
  deadlines_.state = kNever;
  worlds_.withdraw_proposed();
  say(why);
  for (const std::size_t index : std::set<std::size_t>(workers_.live())) {
    const MemberStatus membership = workers_[index].membership;
    if (membership == MemberStatus::joining || membership == MemberStatus::standby) {
      let_go(index, "the job ends");
    }
  }
}

void Job::go_on_if_nobody_is_done() {
  decide_within(kAtOnce);
  if (state_ != JobState::ending) return;
  // Those, too, without whom the others formed a world to finish.
  const bool any_done =
      std::any_of(workers_.live().begin(), workers_.live().end(), [&](std::size_t index) {
        return workers_[index].state == WorkerState::done && !workers_[index].is_to_leave();
      });
  if (!anybody_completed() && !any_done) move(JobState::running);
}

// ---- failed ----

void Job::fail(JobFailure failure, int exit_code) {
  if (stop_has_begun()) return;
  tell_failures({});
  outcome_.failure = std::move(failure);
  outcome_.code = exit_code;
  const std::string reason = reason_of(*outcome_.failure);
  say(cat(reason, "; stopping the job"));
  begin_stop(reason);
}

// With the first of the failures that led here.
void Job::fail_with_cause(const std::string& why) {
  JobFailure failure = failures_.cause().value_or(JobFailure());
  for (const std::string& more : {why, failures_.state_lost_with()}) {
    if (!more.empty()) failure.cause += failure.cause.empty() ? more : cat("; ", more);
  }
  fail(std::move(failure), failures_.cause() ? failures_.exit_code() : kLauncherError);
}

void Job::fail_because(const std::string& cause) {
  JobFailure failure;
  failure.cause = cause;
  fail(std::move(failure), kLauncherError);
}

void Job::fail_with(const JobWorker& worker, const std::string& cause, int exit_code) {
  const auto& member = worker.member;
  fail({member.rank, member.host, member.slot, member.incarnation, worker.pid, cause, {}},
       exit_code);
}

void Job::fail_with_common_cause(const CommonCause::Verdict& fault) {
  const JobWorker& first = workers_.of(fault.first);
  fail_with(first, cat(first.how, "; ", fault.why), first.exit_code);
}

std::string Job::reason_of(const JobFailure& failure) const {
  const bool is_list = !policy_.discovers_hosts;
  const std::string& host = failure.host;
  if (failure.hosts.size() > 1) {
    const std::string who =
        is_list ? cat(failure.hosts.size(), " of ", list_.seated, " hosts cannot take part")
                : cat("none of ", failure.hosts.size(), " hosts can take part");
    return cat(who, "; the first is ", host, ": ", failure.cause);
  }
  if (failure.hosts.size() == 1 && is_list) {
    return cat("host ", host, " cannot take part: ", failure.cause);
  }
  if (failure.slot >= 0) {
    const std::string who = failure.rank >= 0
                                ? cat("rank ", failure.rank, " on ", host, "#", failure.slot)
                                : cat(host, "#", failure.slot);
    return cat(who, " ", failure.cause);
  }
  return host.empty() ? failure.cause : cat("host ", host, ": ", failure.cause);
}

// ---- asked for ----

void Job::on(const event::StopRequested& event) {
  ++outcome_.stop_requests;
  const std::string signal = signal_text(event.signal_number);
  const bool at_once = event.signal_number == SIGQUIT;

  switch (state_) {
    case JobState::planned:
      outcome_.interrupt = event.signal_number;
      break;
    case JobState::preparing:
    case JobState::choosing:
    case JobState::starting:
    case JobState::running:
    case JobState::waiting:
    case JobState::ending:
      outcome_.interrupt = event.signal_number;
      notice(is_preparing_list()
                 ? cat(interrupt_text(), ": no worker was started yet; giving up")
                 : stopping_text(event.signal_number, workers_.live().size(), options_.grace));
      begin_stop(cat("hvdrun was interrupted by ", signal));
      if (at_once && state_ == JobState::stopping) kill_all();
      break;
    case JobState::stopping:
      if (at_once) {
        notice(cat(signal, ": killing what is left"));
        kill_all();
      } else if (outcome_.stop_requests == 1) {
        notice(cat(signal, ": the job is stopping already; a second signal kills at once"));
      } else {
        notice(cat("a second signal, ", signal, ": killing what is left"));
        kill_all();
      }
      break;
    case JobState::killing:
    case JobState::closing:
      if (const bool again = outcome_.stop_requests > 1; again || at_once) {
        drop_all(again ? cat(signal, " once more") : signal, false);
      }
      break;
    case JobState::finished:
      break;
  }
}

void Job::begin_stop(const std::string& reason) {
  tell_failures({});
  move(JobState::stopping);
  deadlines_.state = now_ + options_.grace + options_.stop_margin;
  deadlines_.decision = kNever;
  suspension_.stop_waiting();
  for (const std::size_t index : std::exchange(launches_, {})) {
    end(index, WorkerState::never_started);
  }
  for (const std::size_t index : std::set<std::size_t>(workers_.live())) {
    workers_.set_deadline(index, kNever);
    if (workers_[index].state == WorkerState::planned) end(index, WorkerState::never_started);
  }
  for (const HostIndex index : std::set<HostIndex>(hosts_.present())) {
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
  deadlines_.state = now_ + options_.kill_timeout;
  for (const HostIndex index : hosts_.present()) {
    if (hosts_[index].state == HostState::ready && hosts_[index].live > 0) {
      actions_.emplace_back(action::KillWorkers{index, kEveryWorker});
    }
  }
}

// ---- time, and what follows by itself ----

void Job::on_hold_up(Duration time) {
  say(cat("hvdrun was held up for ", seconds_text(time), ": no limit counts that time"));
  hosts_.heartbeats().held_up(time, now_);
}

void Job::on(const event::Resumed& event) { hosts_.heartbeats().held_up(event.stopped, now_); }

void Job::on(const event::Tick& /*event*/) {
  on_host_deadlines();
  on_silence();
  // Nothing else is judged before all agents have said what happened without a driver.
  if (hosts_.are_any_sought()) return;
  on_worker_deadlines();
  on_init_watch();
  on_state_deadline();
  on_suspension_deadline();
  form_once_more();
}

void Job::on_state_deadline() {
  if (deadlines_.state > now_) return;
  deadlines_.state = kNever;
  if (is_preparing_list()) {
    on_preparation_deadline();
  } else if (state_ == JobState::preparing || state_ == JobState::waiting) {
    std::string cause =
        cat("there was not enough room for ", seconds_text(options_.elastic.elastic_timeout),
            " (--elastic-timeout): ", short_text());
    if (state_ == JobState::waiting && failures_.cause()) {
      cause += cat("; the first failure was that ", reason_of(*failures_.cause()));
    }
    fail_because(cause);
  } else if (state_ == JobState::stopping) {
    warn(cat(live_text(), " still there ", seconds_text(options_.stop_margin),
             " after the end of the grace; killing"));
    kill_all();
  } else if (state_ == JobState::killing) {
    drop_all(
        cat(live_text(), " still there ", seconds_text(options_.kill_timeout), " after SIGKILL"),
        true);
  }
}

bool Job::ended_well(const JobWorker& worker) {
  return worker.membership == MemberStatus::exited_before_init ||
         worker.membership == MemberStatus::completed;
}

bool Job::anybody_completed() const {
  const auto& workers = workers_.all();
  return std::any_of(workers.begin(), workers.end(), [](const JobWorker& one) {
    return one.membership == MemberStatus::completed;
  });
}

void Job::settle() {
  if (state_ == JobState::planned) {
    if (outcome_.interrupt == 0) return;
    move(JobState::finished);
    actions_.emplace_back(action::Finish{128 + outcome_.interrupt, std::nullopt,
                                         cat("interrupted by ", signal_text(outcome_.interrupt))});
    return;
  }

  end_search();
  if (!policy_.discovers_hosts) settle_list();
  init_watch_.set_waiting(joined_.anybody && !workers_.absent().empty() && runs(), now_);
  if (deadlines_.rest <= now_) decide_within(kAtOnce);  // a host has rested
  for (int round = 0; round < kMaxDecisions && deadlines_.decision <= now_; ++round) decide();
  deadlines_.rest = roster_.budget().next_end(now_);

  if (policy_.changes_world && runs() && workers_.live().empty()) {
    const auto& members = worlds_.in_force().members;
    const bool all = std::all_of(members.begin(), members.end(), [&](const WorldMember& member) {
      return ended_well(workers_.of(member.incarnation));
    });
    if (state_ == JobState::ending ? anybody_completed() || suspension_.is_finished() : all) {
      move(JobState::closing);
    } else if (state_ == JobState::ending) {
      fail_with_cause("no worker of the world is left");
    }
  }

  if ((state_ == JobState::stopping || state_ == JobState::killing) && workers_.live().empty()) {
    move(JobState::closing);
  }
  if (state_ == JobState::closing) {
    deadlines_.state = kNever;
    for (const HostIndex index : std::set<HostIndex>(hosts_.present())) {
      if (hosts_[index].state == HostState::starting) drop(index);
      if (hosts_[index].state == HostState::ready) shut_down(index);
    }
    if (hosts_.agents() == 0) finish();
  }
}

int Job::exit_code() const {
  if (outcome_.failure) return outcome_.code;
  if (suspension_.is_in_place() || (suspension_.is_finished() && outcome_.interrupt == 0)) {
    return kSuspended;
  }
  return outcome_.interrupt == 0 ? 0 : 128 + outcome_.interrupt;
}

void Job::finish() {
  move(JobState::finished);
  action::Finish finish;
  finish.exit_code = exit_code();
  if (outcome_.failure) {
    finish.failure = outcome_.failure;
    finish.reason = reason_of(*outcome_.failure);
  } else if (exit_code() == kSuspended) {
    finish.suspended = true;
    finish.reason =
        cat("suspended at a commit, because of ", signal_text(suspension_.signal()),
            suspension_.is_finished() ? ""
                                      : ", and stopped before its state file was sure to "
                                        "outlive a crash of the machine");
  } else if (outcome_.interrupt != 0) {
    finish.reason = interrupt_text();
  } else if (!policy_.changes_world) {
    finish.reason = workers_.size() == 1 ? "the worker exited with 0"
                                         : cat("all ", workers_.size(), " workers exited with 0");
  } else {
    const std::size_t size = worlds_.in_force().members.size();
    finish.reason =
        cat("the work is done; the last world had ", size, size == 1 ? " worker" : " workers");
  }
  actions_.emplace_back(std::move(finish));
}

}  // namespace hvd::driver
