// Workers of an elastic job that fail: what it costs, and what is said of it.
#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/text.h"
#include "driver/job/job.h"

namespace hvd::driver {

void Job::note_cause(const JobWorker& worker, const std::string& how, int exit_code) {
  if (!policy_.restarts_workers) return;  // every failure ends the job
  const auto& member = worker.member;
  failures_.note({member.rank, member.host, member.slot, member.incarnation, worker.pid, how, {}},
                 exit_code, now_);
}

bool Job::is_recovering() const {
  if (!policy_.changes_world) return false;
  if (state_ == JobState::waiting) return true;
  return state_ == JobState::running &&
         (group_.stops() ? group_.is_lossy() : !count_members().lost.empty());
}

// The decision about the slot of a failed worker is told with the failure.
void Job::tell_failures(const std::vector<SlotPlace>& started_again) {
  for (const std::size_t index : failures_.take_untold()) {
    const JobWorker& one = workers_[index];
    const bool is_started =
        std::any_of(started_again.begin(), started_again.end(), [&](const SlotPlace& place) {
          return place.host == one.member.host && place.slot == one.member.slot;
        });
    warn(cat(one.member.worker(), " ", one.how, one.is_to_leave() ? " before it could leave" : "",
             is_started ? "; its slot is started again" : ""));
  }
}

// How long something is set aside. In a group it returns only when all workers begin again.
std::string Job::back_text(TimePoint until) const {
  if (until == kNever) return " for the rest of the job";
  const auto time = std::chrono::ceil<std::chrono::milliseconds>(until - now_);
  if (!is_plain_group()) return cat(" and tried again in ", seconds_text(time));
  return cat(" for ", seconds_text(time), ", and used again at the next restart of all");
}

// "; its slot has failed 4 times: it is set aside and tried again in 14.4 s"
std::string Job::set_aside_text(const JobWorker& worker, TimePoint until) const {
  const std::string& host = worker.member.host;
  const std::string back = back_text(until);
  if (options_.elastic.budget.policy == FailurePolicy::host) {
    return cat("; its host is set aside (--failure-policy host)", back,
               until == kNever ? " (--blacklist-cooldown-range lets it come back)" : "");
  }
  const SlotBudget& budget = roster_.budget();
  if (budget.rests(host, now_)) return cat("; its host is set aside", back);
  const auto resting = budget.resting_slots(host, now_);
  const event::FoundHost* const found = roster_.find_used(host);
  const bool is_all = found != nullptr && roster_.slots_of(found->host) > 1 &&
                      static_cast<int>(resting.size()) >= roster_.slots_of(found->host);
  const int failures = budget.failures(host, worker.member.slot);
  return cat("; its slot has failed ", failures, failures == 1 ? " time" : " times",
             ": it is set aside", back,
             is_all ? cat(", as all ", resting.size(), " slots of host ", host, " are now") : "");
}

CommonCause::Situation Job::situation() const {
  CommonCause::Situation situation;
  situation.world_size = worlds_.in_force().members.size();
  situation.too_few = state_ == JobState::waiting;
  situation.outlives_world = options_.elastic.keeps_state_in_agents;
  std::string_view last_host;
  for (const auto& member : worlds_.in_force().members) {
    if (std::exchange(last_host, member.host) != member.host) ++situation.world_hosts;
  }
  for (const auto& found : roster_.used()) {
    const auto host = hosts_.current(found.host.name);
    if (!host) continue;
    const JobHost& one = hosts_[*host];
    const bool may_be_used = one.state == HostState::starting || one.state == HostState::ready;
    if (!may_be_used || one.leaves) continue;
    ++situation.hosts;
    situation.slots += static_cast<std::size_t>(roster_.slots_of(found.host));
  }
  return situation;
}

void Job::worker_failed(std::size_t index, const std::string& how, int exit_code, bool by_itself) {
  const JobWorker& worker = workers_[index];
  const std::string name = worker.member.worker();
  const bool was_member = worker.membership == MemberStatus::member;
  const bool never_ran = worker.state == WorkerState::launching;
  const bool wanted = worker.membership != MemberStatus::removed;
  std::optional<CommonCause::Verdict> fault;
  workers_[index].exit_code = exit_code;
  const bool leaves = worker.is_to_leave();

  if (!by_itself && wanted) group_.hit();
  const bool is_blamed = !is_plain_group() || may_blame_group();
  const bool can_have_common_cause =
      policy_.restarts_workers && by_itself && wanted && !leaves && is_blamed;
  if (can_have_common_cause && !stop_has_begun()) {
    const CommonCause::Place place{worker.member.host, worker.member.slot};
    const std::uint64_t generation = was_member ? worlds_.in_force().generation : 0;
    fault = common_cause_.failed({worker.member.incarnation, place, how, generation}, situation(),
                                 now_);
  }

  end(index, never_ran ? WorkerState::never_started : WorkerState::exited);
  workers_[index].how = how;
  decide_within(was_member ? options_.elastic.loss_gather : kAtOnce);

  if (stop_has_begun() || !wanted) return;
  if (!policy_.restarts_workers) {
    fail_with(worker, how, exit_code);
    return;
  }

  note_cause(worker, how, exit_code);
  const bool at_the_end = state_ == JobState::ending;
  if (fault) {
    fail_with_common_cause(*fault);
    return;
  }
  if (at_the_end && by_itself && was_member) {
    fail_at_the_end(worker, how, exit_code);
    return;
  }
  if (at_the_end) {
    warn(cat(name, " ", how, " while the job was ending"));
    return;
  }

  const bool is_counted = is_plain_group() && options_.elastic.max_restarts >= 0;
  if (leaves || is_counted || (by_itself && is_plain_group() && group_.is_hit())) {
    failures_.tell_later(index);
    return;
  }
  start_again_or_set_aside(index, how);
}

// It ends the job, though it may follow from another failure.
void Job::fail_at_the_end(const JobWorker& worker, const std::string& how, int exit_code) {
  const JobFailure& first = *failures_.cause();
  const bool follows = first.incarnation != worker.member.incarnation;
  fail_with(worker, follows ? cat(how, "; before that ", reason_of(first)) : how, exit_code);
}

void Job::start_again_or_set_aside(std::size_t index, const std::string& how) {
  const JobWorker& worker = workers_[index];
  const auto& member = worker.member;
  const std::string name = member.worker();
  roster_.note_slot_error(member.host, member.slot, how);
  const TimePoint until = roster_.budget().worker_failed(member.host, member.slot, now_, random());
  if (until <= now_) {
    failures_.tell_later(index);
    return;
  }
  group_.doubt(member.host, member.slot);
  warn(cat(name, " ", how, set_aside_text(worker, until)));
  if (options_.elastic.budget.policy == FailurePolicy::slot) return;
  for (const std::size_t other : std::vector<std::size_t>(hosts_[worker.host].workers)) {
    if (workers_.live().count(other) == 0 || workers_[other].membership == MemberStatus::removed)
      continue;
    // They may be the only ones that have the state whole: the loss may have interrupted the others
    // while they changed it.
    send_away(other, cat("host ", worker.member.host, " rests (--failure-policy host)"), true);
  }
}

}  // namespace hvd::driver
