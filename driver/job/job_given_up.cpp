// Workers of an elastic job that live and are of no use to the others any more: those that left
// early or cannot go on, and those that never call hvd::init.
#include <algorithm>
#include <optional>
#include <set>

#include "base/clock.h"
#include "base/text.h"
#include "driver/job/job.h"

namespace hvd::driver {

// ---- they are given up although they live ----

void Job::on(const event::WorkerLeft& event) {
  if (!policy_.changes_world && !event.for_good) return;
  const JobWorker* const worker = worker_of(event.host, event.incarnation, "gone early");
  if (worker == nullptr) return;

  if (event.for_good && !policy_.changes_world) {
    if (!stop_has_begun()) fail_with(*worker, cat("gave up: ", event.reason), kLauncherError);
    return;
  }
  // No other member could keep the state there either.
  if (event.for_good && is_to_suspend() && worker->is_live_member()) {
    if (!stop_has_begun()) fail_with(*worker, cat("gave up: ", event.reason), kLauncherError);
    return;
  }
  if (event.for_good) roster_.budget().set_aside_for_good(worker->member.host, worker->member.slot);

  const std::size_t index = index_of(event.incarnation);
  if (worker->state == WorkerState::launching) {
    workers_[index].left_early = event.reason;
  } else {
    hear_left(index, event.reason);
  }
}

// An early good end is no failure of the program, and the others need a world without this worker
// all the same: it is in no collective any more.
void Job::hear_left(std::size_t index, const std::string& reason) {
  const JobWorker& worker = workers_[index];
  if (stop_has_begun() || has_ended(worker.state) || worker.membership == MemberStatus::removed)
    return;
  if (worker.is_to_leave()) {
    expect_exit(index);  // as it was asked to, though at no commit
    decide_within(options_.elastic.loss_gather);
    return;
  }
  const std::string how =
      reason.empty() ? std::string(
                           "left early: it called hvd::shutdown, or ended with exit code 0, before "
                           "the work was done")
                     : cat("gave up: ", reason);
  const bool was_member = worker.membership == MemberStatus::member;
  give_up(index, how, !reason.empty() || !was_member);
  // It may still have something to write, and ends by itself.
  if (!stop_has_begun()) {
    workers_.set_deadline(
        index, state_ == JobState::ending ? kNever : now_ + options_.elastic.leave_grace);
  }
}

void Job::give_up(std::size_t index, const std::string& how, bool is_failure) {
  const JobWorker& worker = workers_[index];
  std::optional<CommonCause::Verdict> fault;
  if (is_failure) {
    const CommonCause::Place place{worker.member.host, worker.member.slot};
    fault = common_cause_.failed({worker.member.incarnation, place, how}, situation(), now_);
  } else {
    common_cause_.lost(worker.member.incarnation);
  }
  workers_[index].how = how;
  workers_[index].exit_code = kLauncherError;
  workers_.move(index, MemberStatus::removed);
  workers_.set_deadline(index, kNever);
  decide_within(options_.elastic.loss_gather);
  if (state_ == JobState::ending) return;  // the others finish among themselves
  note_cause(worker, how, kLauncherError);
  if (fault) {
    fail_with_common_cause(*fault);
  } else {
    start_again_or_set_aside(index, how);
  }
}

// ---- members wait in hvd::init() for others ----

void Job::on_init_watch() {
  const auto due = init_watch_.look(now_);
  if (due == InitWatch::Due::nothing || !runs()) return;
  std::size_t asked = 0;
  for (const std::size_t index : std::set<std::size_t>(workers_.absent())) {
    const JobWorker& worker = workers_[index];
    if (due == InitWatch::Due::report) {
      if (asked++ == InitWatch::kNamed) return;
      actions_.emplace_back(action::DescribeWorker{worker.host, worker.member.incarnation});
      continue;
    }
    if (!policy_.restarts_workers) {
      fail_with(worker,
                cat("did not call hvd::init within ", seconds_text(options_.init_timeout),
                    " (--init-timeout), and rank ", joined_.first_rank, " waits for it there"),
                kLauncherError);
      return;
    }
    give_up(index,
            cat("did not call hvd::init within ", seconds_text(options_.init_timeout),
                " (--init-timeout), which others had called"),
            true);
    if (stop_has_begun()) return;
    workers_[index].killed = true;
    actions_.emplace_back(action::KillWorkers{worker.host, worker.member.incarnation});
    workers_.set_deadline(index, now_ + options_.kill_timeout);
  }
}

void Job::on(const event::Described& event) {
  const JobWorker* const worker = worker_of(event.host, event.incarnation, "described");
  if (worker == nullptr || !workers_.absent().contains(index_of(event.incarnation)) || !runs())
    return;
  const int waits = rank_that_waits();
  if (waits < 0) return;
  warn(cat(worker->member.ranked(), absent_text(event.text, waits, workers_.absent().size(),
                                                init_watch_.waited(now_), options_.init_timeout)));
}

// In hvd::init(); -1 if there is none.
int Job::rank_that_waits() const {
  if (!policy_.changes_world) return joined_.first_rank;
  for (const auto& member : worlds_.in_force().members) {
    const JobWorker& one = workers_.of(member.incarnation);
    const bool waits =
        one.state == WorkerState::initialised && one.membership == MemberStatus::member;
    if (waits) return member.rank;
  }
  return -1;
}

// Somebody has called hvd::init: a worker that ended well before and never did leaves a hole.
void Job::notice_exits_before_init() {
  if (!policy_.restarts_workers) {
    check_completeness();
    return;
  }
  for (std::size_t index = 0; index < workers_.size(); ++index) {
    JobWorker& worker = workers_[index];
    if (worker.membership != MemberStatus::exited_before_init) continue;
    workers_.move(index, MemberStatus::removed);
    worker.how = "exited with 0 without calling hvd::init, which others have called";
    note_cause(worker, worker.how, kLauncherError);
    warn(cat(worker.member.worker(), " ", worker.how));
    decide_within(options_.elastic.loss_gather);
  }
}

}  // namespace hvd::driver
