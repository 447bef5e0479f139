// Workers of an elastic job that live and are of no use to the others any more: those that left
// early or cannot go on, and those that never call hvd::init.
#include <algorithm>
#include <optional>
#include <set>

#include "base/text.h"
#include "driver/job/elastic_job.h"

namespace hvd::driver {

// ---- they are given up although they live ----

void ElasticJob::on(const event::WorkerLeft& event) {
  const ElasticWorker* const worker = worker_of(event.host, event.incarnation, "gone early");
  if (worker == nullptr) return;
  const std::size_t index = index_of(event.incarnation);
  if (worker->state == WorkerState::launching) {
    workers_[index].left_early = event.reason;
  } else {
    hear_left(index, event.reason);
  }
}

// An early good end is no failure of the program, and the others need a world without this worker
// all the same: it is in no collective any more.
void ElasticJob::hear_left(std::size_t index, const std::string& reason) {
  const ElasticWorker& worker = workers_[index];
  if (stop_has_begun() || has_ended(worker.state) || worker.standing == Standing::out) return;
  if (!worker.leaves.empty()) {
    expect_exit(index);  // as it was asked to, though at no commit
    decide_within(options_.loss_gather);
    return;
  }
  const std::string how =
      reason.empty() ? std::string(
                           "left early: it called hvd::shutdown, or ended with exit code 0, before "
                           "the work was done")
                     : cat("gave up: ", reason);
  const bool was_member = worker.standing == Standing::member;
  give_up(index, how, !reason.empty() || !was_member);
  // It may still have something to write, and ends by itself.
  if (!stop_has_begun()) {
    set_deadline(index, state_ == ElasticState::ending ? kNever : now_ + options_.leave_grace);
  }
}

void ElasticJob::give_up(std::size_t index, const std::string& how, bool is_failure) {
  const ElasticWorker& worker = workers_[index];
  std::optional<CommonCause::Verdict> fault;
  if (is_failure) {
    const CommonCause::Place place{worker.member.host, worker.member.slot};
    fault = common_cause_.failed({worker.member.incarnation, place, how}, situation(), now_);
  } else {
    common_cause_.lost(worker.member.incarnation);
  }
  workers_[index].given_up = true;
  workers_[index].how = how;
  workers_[index].exit_code = kOwnTrouble;
  move(index, Standing::out);
  set_deadline(index, kNever);
  decide_within(options_.loss_gather);
  if (state_ == ElasticState::ending) return;  // the others finish among themselves
  note_cause(worker, how, kOwnTrouble);
  if (fault) {
    fail_with(this->worker(fault->first), fault->why);
  } else {
    start_again_or_set_aside(index, how);
  }
}

// ---- members wait in hvd::init() for others ----

void ElasticJob::on_init_watch() {
  const auto due = init_watch_.look(now_);
  if (due == InitWatch::Due::nothing || !runs()) return;
  std::size_t asked = 0;
  for (const std::size_t index : std::set<std::size_t>(absent_)) {
    const ElasticWorker& worker = workers_[index];
    if (due == InitWatch::Due::report) {
      if (asked++ == InitWatch::kNamed) return;
      actions_.emplace_back(action::DescribeWorker{worker.host, worker.member.incarnation});
      continue;
    }
    give_up(index,
            cat("did not call hvd::init within ", seconds_text(options_.job.init_timeout),
                " (--init-timeout), which others had called"),
            true);
    if (stop_has_begun()) return;
    workers_[index].killed = true;
    actions_.emplace_back(action::KillWorkers{worker.host, worker.member.incarnation});
    set_deadline(index, now_ + options_.job.kill_timeout);
  }
}

void ElasticJob::on(const event::Described& event) {
  const ElasticWorker* const worker = worker_of(event.host, event.incarnation, "described");
  if (worker == nullptr || !absent_.contains(index_of(event.incarnation)) || !runs()) return;
  const auto& members = effective_.members;
  const auto waits = std::find_if(members.begin(), members.end(), [this](const WorldMember& one) {
    const ElasticWorker& other = this->worker(one.incarnation);
    return other.state == WorkerState::initialised && other.standing == Standing::member;
  });
  if (waits == members.end()) return;
  warn(cat("rank ", worker->member.rank, " on ", worker->member.host,
           absent_text(event.text, waits->rank, absent_.size(), init_watch_.waited(now_),
                       options_.job.init_timeout)));
}

}  // namespace hvd::driver
