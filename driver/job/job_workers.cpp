// Workers of an elastic job: they come, get warm, are members, leave or fail.
#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/text.h"
#include "driver/job/job.h"

namespace hvd::driver {
namespace {

// What an agent has kept. A text that names no commit says that it has nothing.
CommitId commit_of(const std::string& text) {
  const auto id = commit_id_from_text(text);
  return id.ok() ? *id : CommitId();
}

}  // namespace
// The worker that an agent speaks of, if there is one there and the agent may speak.
JobWorker* Job::worker_of(HostIndex host, Incarnation incarnation, std::string_view what) {
  if (!hosts_.is_believed(host)) return nullptr;
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

void Job::launch(const SlotPlace& place, HostIndex host, bool as_member) {
  JobWorker worker;
  // No world has it yet: it chooses its device by its slot.
  worker.member.rank = worker.member.cross_rank = worker.member.cross_size = -1;
  worker.member.local_rank = place.slot;
  worker.member.local_size = place.slots;
  worker.member.host = place.host;
  worker.member.slot = place.slot;
  worker.member.address = hosts_[host].address;
  worker.host = host;
  worker.launch_by = now_ + options_.start_timeout;

  const std::size_t index = workers_.add(std::move(worker));
  hosts_[host].workers.push_back(index);
  ++hosts_[host].live;
  common_cause_.launched(workers_[index].member.incarnation, {place.host, place.slot});
  workers_.move(index, WorkerState::launching);
  workers_.renew_deadline(index);
  // A member's action follows when the world is known; that of others when the survivors know
  // theirs.
  if (!as_member) launches_.push_back(index);
}

void Job::on(const event::Launched& event) {
  const JobWorker* const worker = worker_of(event.host, event.incarnation, "launched");
  if (worker == nullptr) return;
  const std::size_t index = index_of(event.incarnation);
  if (worker->state != WorkerState::launching || event.pid <= 0) {
    broken(event.host, cat("it reported the start of ", worker->member.worker(), ", which is ",
                           name_of(worker->state), ", with pid ", event.pid));
    return;
  }
  workers_.move(index, WorkerState::running);
  workers_[index].pid = event.pid;
  workers_[index].launch_by = kNever;
  workers_[index].kept = commit_of(event.kept);
  if (worker->membership != MemberStatus::removed) workers_.renew_deadline(index);
  for (const WorkerState said : std::exchange(workers_[index].said_early, {})) hear(index, said);
  const JobWorker& one = workers_[index];
  if (one.ready_early && one.state == WorkerState::initialised &&
      one.membership == MemberStatus::joining) {
    hear_ready(index);
  }
  if (one.left_early) hear_left(index, *one.left_early);
  worker_is_started(event.host);
}

void Job::on(const event::LaunchFailed& event) {
  const JobWorker* const worker = worker_of(event.host, event.incarnation, "not launched");
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

// A message of a worker on its own descriptor may come twice, or out of turn, or be wrong: that is
// no reason to distrust its agent.
void Job::on(const event::Initialised& event) {
  if (worker_of(event.host, event.incarnation, "initialised") == nullptr) return;
  hear(index_of(event.incarnation), WorkerState::initialised);
}

void Job::on(const event::Done& event) {
  if (worker_of(event.host, event.incarnation, "done") == nullptr) return;
  hear(index_of(event.incarnation), WorkerState::done);
}

void Job::hear(std::size_t index, WorkerState said) {
  const JobWorker& worker = workers_[index];
  if (worker.state == WorkerState::launching) {
    auto& early = workers_[index].said_early;
    if (early.size() < kMaxSaidEarly) early.push_back(said);
    return;
  }

  const bool in_turn = said == WorkerState::done ? worker.state == WorkerState::initialised
                                                 : worker.state == WorkerState::running ||
                                                       worker.state == WorkerState::done;
  if (!in_turn) return;
  // A group that stops begins anew as if nobody had called it.
  if (group_.stops() && worker.membership == MemberStatus::removed) return;

  // Only a member that takes its word back makes the job go on; a late one does not.
  const bool is_back =
      worker.state == WorkerState::done && worker.membership == MemberStatus::member;
  workers_.move(index, said);

  if (said == WorkerState::initialised) {
    workers_[index].joined = true;
    // A member needs nothing else to join; one that comes still has to get warm.
    if (worker.membership == MemberStatus::member) {
      common_cause_.joined(worker.member.incarnation);
      joined_.a_member = true;
    }
    if (!std::exchange(joined_.anybody, true)) {
      joined_.first_rank = worker.member.rank;
      notice_exits_before_init();
    }
    if (is_back) go_on_if_nobody_is_done();
    decide_within(kAtOnce);
  } else if (!policy_.changes_world) {
    return;  // the job ends when all workers have exited
  } else if (worker.membership == MemberStatus::member) {
    // One that has left at a commit does not say this, so all are done.
    begin_to_end(kWorkIsDone);
    if (state_ == JobState::ending) {
      last_done_ = now_;
      decide_within(options_.elastic.leave_gather);
    }
  } else if (worker.membership == MemberStatus::joining ||
             worker.membership == MemberStatus::standby) {
    expect_exit(index);  // whatever made it think so, it is of no use any more
    decide_within(kAtOnce);
  }
}

void Job::on(const event::WorkerReady& event) {
  if (!policy_.changes_world) return;
  const JobWorker* const worker = worker_of(event.host, event.incarnation, "ready");
  if (worker == nullptr || worker->membership != MemberStatus::joining) return;
  const std::size_t index = index_of(event.incarnation);
  if (worker->state == WorkerState::launching) {
    workers_[index].ready_early = true;
  } else if (worker->state == WorkerState::initialised) {
    hear_ready(index);
  }
}

void Job::hear_ready(std::size_t index) {
  const JobWorker& worker = workers_[index];
  workers_.move(index, MemberStatus::standby);
  common_cause_.joined(worker.member.incarnation);
  say(cat(worker.member.worker(), " is ready to join"));
  if (deadlines_.joiners == kNever) deadlines_.joiners = now_ + options_.elastic.join_gather;
  decide_within(kAtOnce);
}

// ---- they go ----

void Job::on(const event::LeaveRequested& event) {
  if (!policy_.changes_world) return;
  const JobWorker* const worker = worker_of(event.host, event.incarnation, "leaving");
  if (worker == nullptr || has_ended(worker->state) || worker->membership == MemberStatus::removed)
    return;
  const std::size_t index = index_of(event.incarnation);
  send_away(index, cat(worker->member.worker(), " was told to go"), true);
}

// One that is proposed may be a member by now, without our having heard of the commit.
void Job::send_away(std::size_t index, const std::string& why, bool for_good) {
  const JobWorker& worker = workers_[index];
  if (worker.membership == MemberStatus::member) {
    ask_to_leave(index, why, for_good);
  } else if (worlds_.is_proposed(worker.member.incarnation)) {
    ask_to_leave(index, why, for_good);
    workers_[index].leave_by = std::min(worker.leave_by, now_ + options_.elastic.leave_gather);
    workers_.renew_deadline(index);
  } else {
    let_go(index, why);
  }
}

void Job::ask_to_leave(std::size_t index, std::string why, bool for_good) {
  JobWorker& worker = workers_[index];
  const bool was_asked = worker.is_to_leave();
  worker.leaving = std::max(worker.leaving, for_good ? Leaving::for_good : Leaving::asked);
  if (was_asked) {
    // Its host will be gone before the time that it was given is over.
    worker.leave_by = std::min(worker.leave_by, hosts_[worker.host].gone_at);
    workers_.renew_deadline(index);
    return;
  }
  say(cat(why, ": ", worker.member.worker(),
          worker.membership == MemberStatus::member ? " leaves at the next commit"
                                                    : " is to leave if no commit has taken it in"));
  worker.why_it_leaves = std::move(why);
  worker.leave_by = std::min(now_ + options_.elastic.leave_grace, hosts_[worker.host].gone_at);
  workers_.renew_deadline(index);
  decide_within(kAtOnce);
}

void Job::let_go(std::size_t index, const std::string& why) {
  const JobWorker& worker = workers_[index];
  workers_.move(index, MemberStatus::removed);
  workers_.set_deadline(index, kNever);
  decide_within(options_.elastic.loss_gather);
  if (hosts_[worker.host].state != HostState::ready) return;
  actions_.emplace_back(
      action::StopWorkers{worker.host, worker.member.incarnation, options_.grace, why});
  workers_.set_deadline(index, now_ + options_.grace + options_.stop_margin);
}

// It knows by itself that it is out, and ends.
void Job::expect_exit(std::size_t index) {
  workers_.move(index, MemberStatus::removed);
  workers_.set_deadline(index, now_ + options_.elastic.leave_grace);
}

void Job::on_worker_deadlines() {
  while (const auto overdue = workers_.take_overdue(now_)) {
    const std::size_t index = *overdue;
    const JobWorker& worker = workers_[index];
    const std::string name = worker.member.worker();
    if (worker.membership == MemberStatus::removed) {
      if (hosts_[worker.host].state != HostState::ready) continue;
      if (std::exchange(workers_[index].killed, true)) {
        broken(worker.host, cat("it did not end ", name, " within ",
                                seconds_text(options_.kill_timeout), " after SIGKILL"));
        continue;
      }
      // Its agent has killed it long ago, or was never asked to.
      warn(cat(name, " did not end by itself; killing it"));
      actions_.emplace_back(action::KillWorkers{worker.host, worker.member.incarnation});
      workers_.set_deadline(index, now_ + options_.kill_timeout);
    } else if (worker.launch_by <= now_) {
      // An agent that cannot start anything is of no use, and what it may still start is in the
      // way.
      broken(worker.host, cat("it did not start ", name, " within ",
                              seconds_text(options_.start_timeout), " (--start-timeout)"));
    } else if (worker.is_to_leave() && worker.state != WorkerState::done) {
      stop_waiting_for(index);
    }
  }
}

void Job::stop_waiting_for(std::size_t index) {
  const JobWorker& worker = workers_[index];
  if (worker.membership != MemberStatus::member) {
    let_go(index, worker.why_it_leaves);  // no commit has made it a member
    return;
  }

  const std::string name = worker.member.worker();
  const TimePoint gone_at = hosts_[worker.host].gone_at;
  const bool is_alone =
      std::none_of(worlds_.in_force().members.begin(), worlds_.in_force().members.end(),
                   [&](const WorldMember& member) {
                     const JobWorker& one = workers_.of(member.incarnation);
                     return &one != &worker && one.is_live_member();
                   });
  const bool was_needed = std::all_of(
      worlds_.proposed().begin(), worlds_.proposed().end(),
      [&](const auto& proposed) { return has_member(proposed.second, worker.member.incarnation); });

  // What is drained is not taken away: its workers can wait for others to take their place.
  const bool is_drained = roster_.requests().is_drained(worker.member.host, worker.member.slot) &&
                          worker.leaving != Leaving::for_good;
  const bool has_heirs = has_heir([&](const JobWorker& one) { return &one != &worker; });
  const bool has_only_copy = is_alone || (worker.has_state && !has_heirs);
  const bool can_wait = is_drained && was_needed;
  const bool hands_on = has_only_copy && may_get_heir(worker);

  if (can_wait || hands_on) {
    if (!can_wait) say(cat(name, " has the only copy of the state: it stays until others have it"));
    workers_[index].leave_by = now_ + options_.elastic.leave_grace;
    workers_.renew_deadline(index);
    return;
  }

  if (is_alone) {
    failures_.lose_state(cat("the state is lost: ", name,
                             " had the only copy of it and was to leave (", worker.why_it_leaves,
                             "), and no other worker had taken it over ",
                             leave_time_text("after", gone_at)));
    warn(cat(failures_.state_lost_with(), "; stopping it"));
  } else if (was_needed) {
    warn(cat(name, " was to leave (", worker.why_it_leaves, "), and nobody has come in its place ",
             leave_time_text("after", gone_at), "; the others go on without it"));
  } else {
    warn(cat(name, " came to no commit ", leave_time_text("within", gone_at), " (",
             worker.why_it_leaves, "); the others go on without it"));
  }

  if (!is_alone && has_only_copy) {
    failures_.lose_state(
        cat(name, ", the last worker that was known to have the state, was to leave (",
            worker.why_it_leaves, "), and was stopped ", leave_time_text("after", gone_at)));
  }
  let_go(index, worker.why_it_leaves);
}

// "within 30 s (--leave-grace)", for what was waited for in vain.
std::string Job::leave_time_text(std::string_view preposition, TimePoint gone_at) const {
  if (gone_at <= now_) return "before its host was taken away";
  return cat(preposition, " ", seconds_text(options_.elastic.leave_grace), " (--leave-grace)");
}

// Somebody could take the state over from this worker: another one that stays lives, or can be
// started beside this one, perhaps after a rest or the end of another one in that slot.
bool Job::may_get_heir(const JobWorker& worker) const {
  const bool another_stays =
      std::any_of(workers_.live().begin(), workers_.live().end(), [&](std::size_t index) {
        const JobWorker& other = workers_[index];
        return &other != &worker && other.membership != MemberStatus::removed &&
               !other.is_to_leave();
      });
  if (another_stays) return true;
  std::vector<Room> later = roster_.rooms(now_);
  for (Room& room : later) {
    std::erase_if(room.resting_slots, [&](int slot) {
      return roster_.budget().slot_rest_ends(room.host, slot) != kNever;
    });
  }
  const WorldMember& place = worker.member;
  const Occupant self{place.host, place.slot, place.incarnation, true, true};
  return !staff(later, {self}, limits_now()).launch.empty();
}

// ---- they end ----

void Job::on(const event::Exited& event) {
  const JobWorker* const found = worker_of(event.host, event.incarnation, "exited");
  if (found == nullptr) return;
  const std::size_t index = index_of(event.incarnation);
  JobWorker& worker = workers_[index];

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

  worker.kept = commit_of(event.kept);
  const bool was_done = before == WorkerState::done;
  const std::string how =
      cat(exit_text(event), was_done ? " after it had said that its work was done" : "");
  const bool well = event.exit_code == 0 && event.signal_number == 0;

  if (stop_has_begun()) {
    end(index, WorkerState::exited);
  } else if (worker.membership == MemberStatus::removed) {
    end(index, WorkerState::exited);
    if (well && was_done && state_ == JobState::ending) {
      workers_.move(index, MemberStatus::completed);
    }
    // One that was stopped ends by the signal.
    if (!well && event.signal_number != 15) say(cat(worker.member.worker(), ", which left, ", how));
    decide_within(kAtOnce);
  } else if (event.signal_number != 0) {
    worker_failed(index, how, 128 + event.signal_number, !comes_from_outside(event.signal_number));
  } else if (event.exit_code != 0) {
    worker_failed(index, how, event.exit_code, true);
  } else {
    exited_well(index, before);
  }
}

// Its exit code is 0, which is not always the end that it should have.
void Job::exited_well(std::size_t index, WorkerState before) {
  JobWorker& worker = workers_[index];
  const bool is_member = worker.membership == MemberStatus::member;
  const bool was_to_leave = worker.is_to_leave() || worker.may_have_left;
  if (state_ != JobState::ending && is_member && was_to_leave) {
    end(index, WorkerState::exited);
    if (before == WorkerState::done) workers_.move(index, MemberStatus::completed);
    worker.left_at = now_;
    decide_within(kAtOnce);
  } else if (before == WorkerState::done && is_member) {
    end(index, WorkerState::exited);
    workers_.move(index, MemberStatus::completed);
  } else if (before == WorkerState::running && (!joined_.anybody || !policy_.restarts_workers)) {
    end(index, WorkerState::exited);
    workers_.move(index, MemberStatus::exited_before_init);
    if (!joined_.first_exited_before_init) joined_.first_exited_before_init = index;
    if (!policy_.restarts_workers) check_completeness();
  } else {
    worker_failed(index,
                  worker.joined
                      ? "exited with 0 without saying that it was done: it called hvd::init, and "
                        "ended before hvd::shutdown or the normal end of its program"
                      : "exited with 0 without calling hvd::init, which others have called",
                  kLauncherError, true);
  }
}

}  // namespace hvd::driver
