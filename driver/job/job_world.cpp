// The worlds of an elastic job, and what becomes of them.
#include <algorithm>
#include <csignal>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/clock.h"
#include "base/text.h"
#include "driver/job/job.h"

namespace hvd::driver {

void Job::decide_within(std::chrono::milliseconds time) {
  if (policy_.changes_world) deadlines_.decision = std::min(deadlines_.decision, now_ + time);
}

void Job::decide() {
  deadlines_.decision = kNever;
  if (stop_has_begun() || state_ == JobState::planned || !roster_.is_known()) return;
  const bool grows = state_ != JobState::ending && !is_to_suspend();
  if (grows) start_agents();
  plan_list();
  if (stop_has_begun()) return;

  if (state_ == JobState::preparing) {
    form_first_world();
  } else if (is_plain_group()) {
    keep_group();
  } else if (state_ != JobState::ending && nobody_is_left()) {
    // A message of the worker may arrive after it was told to end.
    const bool one_of_these_joined = std::any_of(
        worlds_.in_force().members.begin(), worlds_.in_force().members.end(),
        [&](const WorldMember& member) { return workers_.of(member.incarnation).joined; });
    if (joined_.a_member || one_of_these_joined) {
      if (!goes_on_from_agents()) all_are_gone();
    } else if (is_to_suspend()) {
      on(event::StopRequested{suspension_.signal()});  // there is no state to keep
    } else if (count_members().standby + count_members().joining == 0) {
      begin_again();
    } else {
      if (grows) staff_slots();
      reform_now();
    }
  } else if (!lacks_state() || !goes_on_from_agents()) {
    if (grows) staff_slots();
    reform();
  }

  if (stop_has_begun()) return;
  for (const std::size_t index : std::exchange(launches_, {})) {
    actions_.emplace_back(action::Launch{workers_[index].host, workers_[index].member});
  }
  release_hosts();
}

Job::MembershipCount Job::count_members() const {
  MembershipCount count;
  const auto in_all = worlds_.in_all_proposed();
  for (const auto& member : worlds_.in_force().members) {
    const JobWorker& one = workers_.of(member.incarnation);
    if (one.left_at != kNever) {
      const bool was_last = state_ == JobState::ending && one.membership == MemberStatus::completed;
      if (!was_last && now_ >= commit_is_told_by(one, in_all)) {
        count.lost.push_back(member.incarnation);
      }
      continue;
    }
    if (ended_well(one)) continue;
    if (has_ended(one.state) || one.membership == MemberStatus::removed) {
      count.lost.push_back(member.incarnation);
    } else if (!one.is_to_leave()) {
      count.staying.push_back(member.incarnation);
    } else {
      count.leaving.push_back(member.incarnation);
    }
  }
  for (const std::size_t index : workers_.live()) {
    const bool is_of_use = !workers_[index].is_to_leave();
    if (workers_[index].membership == MemberStatus::standby && is_of_use) ++count.standby;
    if (workers_[index].membership == MemberStatus::joining) ++count.joining;
  }
  return count;
}

// Warm workers; those that are proposed first, since a commit may have made them members already,
// and in the order of discovery. One comes first whose agent has given it the newest state, since
// it may be the only one that has it.
std::vector<Newcomer> Job::newcomers(std::size_t most) const {
  std::unordered_map<std::string, std::size_t> place;
  for (const auto& found : roster_.used()) place.emplace(found.host.name, place.size());
  std::set<Incarnation> proposed;
  for (const auto& [generation, world] : worlds_.proposed()) {
    for (const auto& member : world.members) proposed.insert(member.incarnation);
  }
  using Order = std::tuple<bool, std::size_t, int>;
  std::vector<std::pair<Order, std::size_t>> warm;
  for (const std::size_t index : workers_.live()) {
    const JobWorker& one = workers_[index];
    const auto host = place.find(one.member.host);
    if (one.membership != MemberStatus::standby || one.is_to_leave() || host == place.end())
      continue;
    const bool is_new = proposed.count(one.member.incarnation) == 0;
    warm.push_back({{is_new, host->second, one.member.slot}, index});
  }
  std::sort(warm.begin(), warm.end());
  const auto keeper = std::max_element(warm.begin(), warm.end(), [&](const auto& a, const auto& b) {
    return workers_[a.second].kept < workers_[b.second].kept;
  });
  if (keeper != warm.end()) std::rotate(warm.begin(), keeper, std::next(keeper));
  if (warm.size() > most) warm.resize(most);
  std::vector<Newcomer> result;
  for (const auto& [order, index] : warm) {
    const WorldMember& member = workers_[index].member;
    result.push_back({member.host, member.slot, member.incarnation, member.address});
  }
  return result;
}

bool Job::nobody_is_left() const {
  const MembershipCount now = count_members();
  return !now.lost.empty() && now.staying.empty() && now.leaving.empty();
}

// If all were asked to leave, and all said that they were done, they were done with the work.
void Job::all_are_gone() {
  const bool all_well =
      std::all_of(worlds_.in_force().members.begin(), worlds_.in_force().members.end(),
                  [&](const WorldMember& member) {
                    return workers_.of(member.incarnation).membership == MemberStatus::completed;
                  });
  if (all_well) {
    begin_to_end(kWorkIsDone);
  } else {
    fail_with_cause(failures_.state_lost_with().empty() ? "no worker of the world is left" : "");
  }
}

// Until when a commit may still be told of at which this worker left. If no world without it is
// proposed any more, since a loss has made another, there is none to wait for; unless it was done,
// since then the others may be done, too.
TimePoint Job::commit_is_told_by(const JobWorker& one,
                                 const std::vector<Incarnation>& in_all_proposed) const {
  const bool may_be_told =
      state_ == JobState::ending || one.membership == MemberStatus::completed ||
      !std::binary_search(in_all_proposed.begin(), in_all_proposed.end(), one.member.incarnation);
  if (!may_be_told) return one.left_at;
  // An agent that is still to be found may know of it.
  return hosts_.are_any_sought() ? kNever : one.left_at + options_.elastic.leave_gather;
}

// A worker that left counts as lost if no commit is told of in time.
void Job::await_commits_of_those_who_left() {
  const auto in_all = worlds_.in_all_proposed();
  for (const auto& member : worlds_.in_force().members) {
    const JobWorker& one = workers_.of(member.incarnation);
    if (one.left_at == kNever) continue;
    const TimePoint told_by = commit_is_told_by(one, in_all);
    if (told_by > now_) deadlines_.decision = std::min(deadlines_.decision, told_by);
  }
}

void Job::reform() {
  await_commits_of_those_who_left();
  if (state_ == JobState::waiting || !count_members().lost.empty() || others_wait_for_the_done()) {
    reform_now();
  } else if (state_ == JobState::running) {
    reform_at_commit();
  }
}

// Some are done, and some are not, since they had not heard that all were and are in a newer world
// with them, for which they wait in vain.
bool Job::others_wait_for_the_done() {
  if (suspension_.is_finished()) return false;
  if (state_ != JobState::ending || last_done_ == kNever || hosts_.are_any_sought()) return false;
  if (now_ < last_done_ + options_.elastic.leave_gather) {
    deadlines_.decision = std::min(deadlines_.decision, last_done_ + options_.elastic.leave_gather);
    return false;
  }
  last_done_ = kNever;
  const auto& members = worlds_.in_force().members;
  return std::any_of(members.begin(), members.end(), [&](const WorldMember& member) {
    const JobWorker& one = workers_.of(member.incarnation);
    return has_ended(one.state) || one.state == WorkerState::done;
  });
}

void Job::reform_now() {
  MembershipCount now = count_members();
  if (state_ == JobState::ending) {
    // A worker that is done does not come back; the others finish their work among themselves.
    std::vector<Incarnation> gone;
    std::size_t left = 0;
    for (const auto& member : worlds_.in_force().members) {
      const JobWorker& one = workers_.of(member.incarnation);
      const bool works = !has_ended(one.state) && one.membership == MemberStatus::member &&
                         one.state != WorkerState::done;
      if (works) ++left;
      if (!works) gone.push_back(member.incarnation);
    }
    if (left > 0) publish(WorldState::effective, gone, {});
    return;
  }

  // Workers that are to leave stay: they may be the only holders of the state. They leave at the
  // next commit.
  // To be suspended they need not be enough to work.
  const auto least =
      static_cast<std::size_t>(is_to_suspend() ? 1 : std::max(options_.elastic.limits.least, 1));
  const std::size_t left = now.staying.size() + now.leaving.size();
  const std::size_t there = left + now.standby;

  // No fewer than before, though that world may have been one above the most to hand the state
  // over.
  const Limits limits = limits_now();
  int before = static_cast<int>(std::min(worlds_.in_force().members.size(), there));
  if (limits.most != 0) before = std::min(before, limits.most);
  const auto size = static_cast<std::size_t>(
      std::max(world_size(static_cast<int>(there + now.joining), limits), before));

  const auto come = newcomers(is_to_suspend() ? 0 : size - std::min(size, left));
  if (left + come.size() < least) {
    fall_short(left + come.size());
    return;
  }

  std::vector<Incarnation> gone = now.lost;
  for (const auto& member : worlds_.in_force().members) {
    const JobWorker& one = workers_.of(member.incarnation);
    const bool ended = ended_well(one) || one.left_at != kNever;
    const bool is_lost =
        std::find(now.lost.begin(), now.lost.end(), member.incarnation) != now.lost.end();
    if (ended && !is_lost) gone.push_back(member.incarnation);
  }

  if (reset_is_one_too_many()) return;
  if (state_ == JobState::waiting) {
    move(JobState::running);
    deadlines_.state = kNever;
  }

  publish(WorldState::effective, gone, come);
  if (is_to_suspend()) {
    propose_last_world();
  } else if (!now.leaving.empty()) {
    decide_within(kAtOnce);  // on the world that they leave for
  }
}

// The words are Horovod's.
bool Job::reset_is_one_too_many() {
  const int most = options_.elastic.reset_limit;
  if (most < 0 || failures_.count_reset() <= most) return false;
  fail_with_cause(
      cat("Horovod was shutdown because number of resets during elastic job exceeded limit: ", most,
          " (--reset-limit)"));
  return true;
}

bool Job::can_never_be_enough() const {
  if (!options_.elastic.hosts_are_fixed) return false;
  const auto slots = roster_.slots_for_ever(now_);
  return slots && *slots < std::max(options_.elastic.limits.least, 1);
}

void Job::fall_short(std::size_t there) {
  wait_for_workers(cat(there, there == 1 ? " worker is" : " workers are",
                       " left, and the world needs at least ", options_.elastic.limits.least,
                       " (--min-np)"));
}

void Job::wait_for_workers(const std::string& why) {
  if (can_never_be_enough()) {
    fail_with_cause(cat("there will never be enough room again: ", short_text()));
    return;
  }
  if (state_ == JobState::waiting) return;
  move(JobState::waiting);
  deadlines_.state = now_ + options_.elastic.elastic_timeout;
  warn(cat(why, ": waiting for replacements, at most ",
           seconds_text(options_.elastic.elastic_timeout), " (--elastic-timeout)"));
}

std::vector<Incarnation> Job::needed(const MembershipCount& now,
                                     const std::vector<Newcomer>& come) const {
  std::vector<Leaver> leavers;
  for (const Incarnation incarnation : now.leaving) {
    leavers.push_back({incarnation, workers_.of(incarnation).leave_by});
  }
  std::vector<Incarnation> going_on = now.staying;
  for (const auto& newcomer : come) going_on.push_back(newcomer.incarnation);
  std::vector<std::vector<Incarnation>> worlds{membership(worlds_.in_force())};
  for (const auto& [generation, world] : worlds_.proposed()) worlds.push_back(membership(world));
  const auto least = static_cast<std::size_t>(std::max(options_.elastic.limits.least, 1));
  return who_stays_on(std::move(leavers), least - std::min(least, going_on.size()), going_on,
                      worlds);
}

bool Job::has_heir(const std::function<bool(const JobWorker&)>& among) const {
  return std::any_of(worlds_.in_force().members.begin(), worlds_.in_force().members.end(),
                     [&](const WorldMember& member) {
                       const JobWorker& one = workers_.of(member.incarnation);
                       return one.has_state && one.membership == MemberStatus::member &&
                              !has_ended(one.state) && !one.may_have_left && among(one);
                     });
}

void Job::reform_at_commit() {
  const MembershipCount now = count_members();
  const bool all_go =
      !now.leaving.empty() && now.staying.empty() && now.standby == 0 && now.joining == 0;
  if (options_.elastic.suspends_when_all_go && all_go && !suspension_.has_begun()) {
    notice("all workers were told to go: the job ends at its next commit");
    suspend(SIGTERM);
  }
  if (is_to_suspend()) return propose_last_world();

  const auto least = static_cast<std::size_t>(std::max(options_.elastic.limits.least, 1));
  const auto all = static_cast<int>(now.staying.size() + now.standby + now.joining);
  // Spares take the place of slow members.
  Limits limits = limits_now();
  limits.spares = std::max(limits.spares - static_cast<int>(giving_way()), 0);
  const auto size = std::max(static_cast<std::size_t>(world_size(all, limits)), now.staying.size());
  std::vector<Newcomer> come = newcomers(size - now.staying.size());
  std::vector<Incarnation> kept = needed(now, come);
  // A world is larger than the most only to hand the state over to its only other member.
  const auto most = static_cast<std::size_t>(limits_now().most);
  while (most != 0 && come.size() > 1 && now.staying.size() + come.size() + kept.size() > most) {
    come.pop_back();
    kept = needed(now, come);
  }

  if (come.empty()) {
    deadlines_.joiners = kNever;
  } else if (now.joining > 0 && deadlines_.joiners != kNever && now_ < deadlines_.joiners) {
    deadlines_.decision = std::min(deadlines_.decision, deadlines_.joiners);
    const bool can_wait = kept.size() == now.leaving.size() || now.staying.size() < least;
    if (can_wait || !worlds_.proposed().empty()) return;  // what is proposed stays so
    come.clear();
    kept = needed(now, come);
  }

  std::vector<Incarnation> gone;
  for (const Incarnation leaver : now.leaving) {
    if (std::find(kept.begin(), kept.end(), leaver) == kept.end()) gone.push_back(leaver);
  }
  // It is not known yet at which commit these left.
  for (const auto& member : worlds_.in_force().members) {
    if (workers_.of(member.incarnation).left_at != kNever) gone.push_back(member.incarnation);
  }
  WorldDocument next;
  next.members = plan_world(worlds_.in_force().members, gone, come);
  if (next.members.size() < least) return;
  const WorldDocument& last =
      worlds_.proposed().empty() ? worlds_.in_force() : worlds_.proposed().rbegin()->second;
  if (membership(next) == membership(last)) return;
  publish(WorldState::proposed, gone, come);
}

void Job::publish(WorldState state, const std::vector<Incarnation>& gone,
                  const std::vector<Newcomer>& newcomers) {
  WorldDocument world = worlds_.plan_next(state, gone, newcomers);
  actions_.emplace_back(action::PublishWorld{
      world, state == WorldState::effective ? change_text(world) : std::string()});
  deadlines_.joiners = kNever;
  if (state == WorldState::proposed) {
    for (const Incarnation incarnation : gone) workers_.of(incarnation).may_have_left = true;
    worlds_.propose(std::move(world));
    return;
  }
  worlds_.withdraw_proposed();
  take_into_force(std::move(world));
}

void Job::take_into_force(WorldDocument world) {
  const WorldDocument before = worlds_.take_into_force(std::move(world));
  took_force_ = now_;
  is_entered_ = false;
  deadlines_.entry = kNever;

  // Another commit may have followed, to a world that is proposed still.
  std::vector<std::vector<Incarnation>> later;
  for (const auto& [generation, proposed] : worlds_.proposed())
    later.push_back(membership(proposed));
  const auto stays_for_sure = [&](Incarnation incarnation) {
    return std::all_of(later.begin(), later.end(), [&](const auto& incarnations) {
      return std::binary_search(incarnations.begin(), incarnations.end(), incarnation);
    });
  };

  std::set<Incarnation> members;
  for (const auto& member : worlds_.in_force().members) {
    members.insert(member.incarnation);
    JobWorker& one = workers_.of(member.incarnation);
    one.member = member;
    if (!stays_for_sure(member.incarnation)) one.may_have_left = true;
    // One that was told to end, while a commit took it in, ends: it counts as lost.
    if (one.membership == MemberStatus::member || one.membership == MemberStatus::removed ||
        has_ended(one.state)) {
      continue;
    }
    workers_.move(member.incarnation - 1, MemberStatus::member);
    joined_.a_member = joined_.a_member || one.joined;
    workers_.renew_deadline(member.incarnation - 1);
  }

  for (const auto& member : before.members) {
    const JobWorker& one = workers_.of(member.incarnation);
    if (members.count(member.incarnation) != 0 || has_ended(one.state) ||
        one.membership != MemberStatus::member) {
      continue;
    }
    // A worker that is done takes the time that it needs to end.
    const bool is_done = state_ == JobState::ending && one.state == WorkerState::done;
    expect_exit(member.incarnation - 1);
    if (is_done) workers_.set_deadline(member.incarnation - 1, kNever);
  }
}

void Job::on(const event::WorldEntered& event) {
  if (event.generation != worlds_.in_force().generation) return;
  if (workers_.index_of(event.slowest) == workers_.size()) return;
  is_entered_ = true;
  // It has recovered from what failed before. A later failure has a cause of its own.
  if (count_members().lost.empty()) failures_.recovered();
  for (const auto& member : worlds_.in_force().members) {
    workers_.of(member.incarnation).has_state = true;
  }
  const WorldMember& slowest = workers_.of(event.slowest).member;
  say(cat("world ", event.generation, " is at work; ", slowest.worker(), " took the longest, ",
          entry_text(event)));
}

// The words that members of a world write for each other, while it forms, died with their driver:
// one that had read its part waits in vain for others that had not. So a world that may have been
// forming is formed once more, unless its workers report that they work in it.
void Job::on(const event::TakenOver& event) {
  constexpr std::chrono::seconds kMayBeForming{30};
  constexpr std::chrono::seconds kForReports{2};  // each worker reports once a second
  hosts_.heartbeats().held_up(event.without_driver, now_);
  hosts_.seek_all();
  if (sought_since_ == kNever) sought_since_ = now_;
  say(cat("driver ", event.epoch, " of the job goes on, ", seconds_text(event.without_driver),
          " after the one before had done its last step"));
  if (is_plain_group()) deadlines_.reports = now_ + options_.start_timeout;
  const bool may_form =
      state_ == JobState::running && !is_entered_ && now_ - took_force_ < kMayBeForming;
  if (may_form && !is_plain_group()) deadlines_.entry = now_ + kForReports;
}

// The agents say only now what they and their workers have done since the driver before has died.
// So the time of the search does not count for limits that this may keep, nor the moment in which
// that is read.
void Job::end_search() {
  if (sought_since_ == kNever || hosts_.are_any_sought()) return;
  const Duration time = now_ - std::exchange(sought_since_, kNever) + options_.pace;
  workers_.extend_deadlines(time);
  init_watch_.extend(time);
  suspension_.extend_deadline(time);
  for (TimePoint* const until : {&deadlines_.state, &deadlines_.entry, &last_done_}) {
    if (*until != kNever) *until += time;
  }
  decide_within(options_.pace);
}

void Job::form_once_more() {
  if (deadlines_.entry > now_) return;
  deadlines_.entry = kNever;
  const bool is_complete = count_members().lost.empty();
  if (state_ == JobState::running && !is_entered_ && is_complete &&
      worlds_.in_force().members.size() > 1) {
    publish(WorldState::effective, {}, {});
  }
}

void Job::on(const event::Committed& event) {
  const JobWorker* const who = worker_of(event.host, event.incarnation, "committed");
  if (who == nullptr || stop_has_begun()) return;
  if (event.generation <= worlds_.generation()) workers_.of(event.incarnation).has_state = true;
  if (worlds_.is_withdrawn_last(event.generation)) return suspended_before_a_loss();
  const auto proposed = worlds_.proposed().find(event.generation);
  // An effective one was faster, or another worker has said it before.
  if (proposed == worlds_.proposed().end()) return;
  const bool is_member = has_member(proposed->second, event.incarnation);
  const bool was_member = who->membership == MemberStatus::member;
  if (!is_member && !was_member) return;
  WorldDocument world = *worlds_.take_proposed(event.generation);
  if (world.last) return suspended(std::move(world));

  // It stayed at that commit; there may have been another since.
  if (is_member) workers_.of(event.incarnation).may_have_left = false;
  count_planned_reset();
  failures_.committed();
  world.state = WorldState::effective;
  for (const auto& member : worlds_.in_force().members) {
    workers_.of(member.incarnation).has_state = true;
  }
  // Joiners wait for just that.
  actions_.emplace_back(action::PublishWorld{world, change_text(world)});
  take_into_force(std::move(world));
  decide_within(kAtOnce);
}

}  // namespace hvd::driver
