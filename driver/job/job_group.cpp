// Programs that know nothing of hvd, such as those on torch.distributed: while no worker has called
// hvd::init() there is no state to keep, and nobody who could tell the workers of another world.
// So a failure, or a change of hosts, ends all of them, and all are started again, with new ranks.
// None is started to join the others, since it would not know that it has no rank yet.
#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "base/text.h"
#include "driver/job/job.h"

namespace hvd::driver {

bool Job::is_plain_group() const {
  return policy_.changes_world && !joined_.anybody && !worlds_.in_force().members.empty() &&
         (state_ == JobState::running || state_ == JobState::waiting);
}

// A worker that fails by itself may say that the program is wrong; not if the loss of another was
// the cause, nor if all have worked for long, nor if it is said how often they may fail.
bool Job::may_blame_group() const {
  return options_.elastic.max_restarts < 0 && !group_.is_hit() && !has_worked_for_long();
}

bool Job::has_worked_for_long() const {
  return now_ - group_.begun() >= options_.elastic.budget.forget_after;
}

// Free slots that make the world larger. A slot that may still be broken is not worth it to stop
// all others.
bool Job::has_room_for_more() const {
  return !staff(group_.without_doubtful(roster_.rooms(now_)), occupants(), limits_now())
              .launch.empty();
}

void Job::trust_slots_of(const std::string& host) {
  group_.trust_hosts_if([&](const std::string& one) { return one == host; });
}

void Job::trust_slots_that_worked() {
  for (const std::size_t index : workers_.live()) {
    const WorldMember& member = workers_[index].member;
    group_.trust(member.host, member.slot);
  }
}

bool Job::has_lost_room() const {
  const auto released = staff(roster_.rooms(now_), occupants(), limits_now()).release;
  return std::any_of(released.begin(), released.end(), [&](Incarnation incarnation) {
    return !has_ended(workers_.of(incarnation).state);
  });
}

void Job::keep_group() {
  if (!group_.stops()) find_reason_to_restart_group();
  if (!group_.stops() || stop_has_begun() || !workers_.live().empty()) return;
  begin_again();
  // More may have been asked for since the other group was told to end.
  if (!group_.stops()) find_reason_to_restart_group();
}

void Job::find_reason_to_restart_group() {
  // Agents that are yet to be found may tell that the workers have begun to work: they did without
  // a driver, and would lose what they have committed.
  if (now_ < deadlines_.reports) {
    deadlines_.decision = std::min(deadlines_.decision, deadlines_.reports);
    return;
  }
  const MembershipCount now = count_members();
  const char* const or_scaled = roster_.requests().size == 0 ? "" : ", or the job was scaled";
  if (!now.lost.empty()) {
    stop_group_after_failure();
  } else if (!workers_.live().empty() && (!now.leaving.empty() || has_lost_room())) {
    stop_group_when_ripe(now_, cat("hosts or slots go", or_scaled));
  } else if (now.staying.size() == worlds_.in_force().members.size() && has_room_for_more()) {
    // A program on hvd would soon call hvd::init(), and then others could join it.
    stop_group_when_ripe(group_.begun() + options_.elastic.grow_delay,
                         cat("hosts or slots have come", or_scaled));
  } else {
    group_.wants_no_change();
  }
}

// The messages that the workers sent before the change may still be unread, if hvdrun was held up:
// that they are done, or that the program does know hvd.
void Job::stop_group_when_ripe(TimePoint earliest, const std::string& why) {
  const TimePoint since = group_.wants_change(now_);
  const TimePoint ripe = std::max(earliest, since + options_.elastic.loss_gather);
  if (now_ >= ripe) {
    stop_group(why);
    count_planned_reset();
  } else {
    deadlines_.decision = std::min(deadlines_.decision, ripe);
  }
}

void Job::stop_group_after_failure() {
  for (const std::size_t index : failures_.take_untold()) {
    warn(cat(workers_[index].member.worker(), " ", workers_[index].how));
  }
  const int most = options_.elastic.max_restarts;
  if (most >= 0 && group_.restarts() >= most) {
    fail_with_cause(most == 0 ? std::string()
                              : cat("the workers had been started again ", most,
                                    most == 1 ? " time" : " times", " (--max-restarts)"));
    return;
  }
  if (reset_is_one_too_many()) return;
  group_.count_restart();
  if (most >= 0) failures_.recovered();  // what ends the job is the last failure
  stop_group("a worker was lost");
  group_.stop_after_loss();
}

void Job::stop_group(const std::string& why) {
  warn(cat(why, ": all workers are started again, since none has called hvd::init()"));
  group_.stop(limits_now());
  if (has_worked_for_long()) {
    common_cause_.forget_fresh();
    trust_slots_that_worked();
  }
  for (const auto& member : worlds_.in_force().members) {
    const std::size_t index = Workers::index(member.incarnation);
    if (workers_[index].membership == MemberStatus::exited_before_init) {
      workers_.move(index, MemberStatus::removed);
    }
  }
  for (const std::size_t index : std::set<std::size_t>(workers_.live())) {
    if (workers_[index].membership != MemberStatus::removed) let_go(index, why);
  }
  decide_within(kAtOnce);
}

// The group has ended, by itself or because it was told to.
void Job::begin_again() {
  const Limits limits = roster_.requests().bound(group_.limits().value_or(limits_now()));
  const auto places = staff(roster_.rooms(now_), occupants(), limits).launch;
  const auto size = static_cast<std::size_t>(world_size(static_cast<int>(places.size()), limits));
  if (size < static_cast<std::size_t>(std::max(options_.elastic.limits.least, 1))) {
    tell_failures({});
    fall_short(size);
    return;
  }
  tell_failures(places);
  std::vector<Incarnation> gone;
  for (const auto& member : worlds_.in_force().members) gone.push_back(member.incarnation);
  begin_world({places.begin(), places.begin() + static_cast<std::ptrdiff_t>(size)}, gone);
  // One may have called hvd::init() and committed after it was told to end.
  actions_.emplace_back(action::VoidCommits{worlds_.generation()});
  for (std::size_t i = size; i < places.size(); ++i) {
    launch(places[i], *hosts_.current(places[i].host), false);
  }
}

}  // namespace hvd::driver
