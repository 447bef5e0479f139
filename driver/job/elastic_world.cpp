// The worlds of an elastic job, and what becomes of them.
#include <algorithm>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/text.h"
#include "driver/job/elastic_job.h"

namespace hvd::driver {
namespace {

// Who they are, whatever their ranks.
std::vector<Incarnation> membership(const WorldDocument& world) {
  std::vector<Incarnation> members;
  for (const auto& member : world.members) members.push_back(member.incarnation);
  std::sort(members.begin(), members.end());
  return members;
}

}  // namespace

void ElasticJob::decide() {
  decide_at_ = kNever;
  if (stop_has_begun() || state_ == ElasticState::planned || !found_) return;
  if (state_ != ElasticState::ending) visit_hosts();
  plan_list();
  if (stop_has_begun()) return;
  if (state_ == ElasticState::gathering) {
    form_first_world();
  } else if (state_ != ElasticState::ending && nobody_is_left()) {
    all_are_gone();
  } else {
    if (state_ != ElasticState::ending) staff_slots();
    reform();
  }
  if (stop_has_begun()) return;
  for (const std::size_t index : std::exchange(launches_, {})) {
    actions_.emplace_back(action::Launch{workers_[index].host, workers_[index].member});
  }
  end_visits();
}

ElasticJob::Muster ElasticJob::muster() const {
  Muster muster;
  for (const auto& member : effective_.members) {
    const ElasticWorker& one = worker(member.incarnation);
    if (one.left_at != kNever) {
      const bool was_last = state_ == ElasticState::ending && one.well;
      if (!was_last && now_ >= one.left_at + options_.leave_gather) {
        muster.lost.push_back(member.incarnation);
      }
      continue;
    }
    if (one.quiet || one.well) continue;
    if (has_ended(one.state) || one.standing == Standing::out) {
      muster.lost.push_back(member.incarnation);
    } else if (one.leaves.empty()) {
      muster.staying.push_back(member.incarnation);
    } else {
      muster.leaving.push_back(member.incarnation);
    }
  }
  for (const std::size_t index : live_) {
    if (workers_[index].standing == Standing::warm) ++muster.warm;
    if (workers_[index].standing == Standing::coming) ++muster.coming;
  }
  return muster;
}

// Warm workers; those that are proposed first, since a commit may have made them members already,
// and in the order of discovery.
std::vector<Newcomer> ElasticJob::newcomers(std::size_t most) const {
  std::unordered_map<std::string, std::size_t> place;
  for (const auto& found : *found_) place.emplace(found.host.name, place.size());
  std::set<Incarnation> proposed;
  for (const auto& [generation, world] : proposed_) {
    for (const auto& member : world.members) proposed.insert(member.incarnation);
  }
  using Order = std::tuple<bool, std::size_t, int>;
  std::vector<std::pair<Order, std::size_t>> warm;
  for (const std::size_t index : live_) {
    const ElasticWorker& one = workers_[index];
    const auto host = place.find(one.member.host);
    if (one.standing != Standing::warm || host == place.end()) continue;
    const bool is_new = proposed.count(one.member.incarnation) == 0;
    warm.push_back({{is_new, host->second, one.member.slot}, index});
  }
  std::sort(warm.begin(), warm.end());
  if (warm.size() > most) warm.resize(most);
  std::vector<Newcomer> result;
  for (const auto& [order, index] : warm) {
    const WorldMember& member = workers_[index].member;
    result.push_back({member.host, member.slot, member.incarnation, member.address});
  }
  return result;
}

bool ElasticJob::something_is_proposed() const {
  return !proposed_.empty() && membership(proposed_.rbegin()->second) != membership(effective_);
}

bool ElasticJob::nobody_is_left() const {
  const Muster now = muster();
  return !now.lost.empty() && now.staying.empty() && now.leaving.empty();
}

// If all were asked to leave, and all said that they were done, they were done with the work.
void ElasticJob::all_are_gone() {
  const bool all_well =
      std::all_of(effective_.members.begin(), effective_.members.end(),
                  [&](const WorldMember& member) { return worker(member.incarnation).well; });
  if (all_well) {
    begin_to_end();
  } else {
    fail_with_cause("no worker of the world is left");
  }
}

// Whoever is told of no commit in time counts as lost.
void ElasticJob::await_commits_of_those_who_left() {
  for (const auto& member : effective_.members) {
    const TimePoint left_at = worker(member.incarnation).left_at;
    if (left_at == kNever || left_at + options_.leave_gather <= now_) continue;
    decide_at_ = std::min(decide_at_, left_at + options_.leave_gather);
  }
}

void ElasticJob::reform() {
  await_commits_of_those_who_left();
  if (state_ == ElasticState::waiting || !muster().lost.empty() || others_wait_for_the_done()) {
    reform_now();
  } else if (state_ == ElasticState::training) {
    reform_at_commit();
  }
}

// Some are done, and some are not, since they had not heard that all were and are in a newer world
// with them, for which they wait in vain.
bool ElasticJob::others_wait_for_the_done() {
  if (state_ != ElasticState::ending || last_done_ == kNever) return false;
  if (now_ < last_done_ + options_.leave_gather) {
    decide_at_ = std::min(decide_at_, last_done_ + options_.leave_gather);
    return false;
  }
  last_done_ = kNever;
  const auto& members = effective_.members;
  return std::any_of(members.begin(), members.end(), [&](const WorldMember& member) {
    const ElasticWorker& one = worker(member.incarnation);
    return has_ended(one.state) || one.state == WorkerState::done;
  });
}

void ElasticJob::reform_now() {
  Muster now = muster();
  if (state_ == ElasticState::ending) {
    // Who is done does not come back; the others finish their work among themselves.
    std::vector<Incarnation> gone;
    std::size_t left = 0;
    for (const auto& member : effective_.members) {
      const ElasticWorker& one = worker(member.incarnation);
      const bool works = !has_ended(one.state) && one.standing == Standing::member &&
                         one.state != WorkerState::done;
      if (works) ++left;
      if (!works) gone.push_back(member.incarnation);
    }
    if (left > 0) publish(WorldState::effective, gone, {});
    return;
  }
  const auto least = static_cast<std::size_t>(std::max(options_.limits.least, 1));
  const std::size_t there = now.staying.size() + now.warm;
  const auto size = static_cast<std::size_t>(
      std::max(world_size(static_cast<int>(there + now.coming), limits_now()),
               static_cast<int>(std::min(effective_.members.size(), there))));
  const auto come = newcomers(size - std::min(size, now.staying.size()));
  // Who is leaving takes the occasion, but for those who are needed.
  const std::size_t missing = least - std::min(least, now.staying.size() + come.size());
  const std::size_t kept = std::min(missing, now.leaving.size());
  const std::size_t members = now.staying.size() + come.size() + kept;
  if (members < least) {
    fall_short(members);
    return;
  }
  std::vector<Incarnation> gone = now.lost;
  gone.insert(gone.end(), now.leaving.begin() + static_cast<std::ptrdiff_t>(kept),
              now.leaving.end());
  for (const auto& member : effective_.members) {
    const ElasticWorker& one = worker(member.incarnation);
    const bool ended = one.quiet || one.well || one.left_at != kNever;
    const bool is_lost =
        std::find(now.lost.begin(), now.lost.end(), member.incarnation) != now.lost.end();
    if (ended && !is_lost) gone.push_back(member.incarnation);
  }
  if (options_.reset_limit >= 0 && ++failure_resets_ > options_.reset_limit) {
    fail_with_cause(
        cat("Horovod was shutdown because number of resets during elastic job exceeded "
            "limit: ",
            options_.reset_limit, " (--reset-limit)"));
    return;
  }
  if (state_ == ElasticState::waiting) {
    move(ElasticState::training);
    state_deadline_ = kNever;
  }
  publish(WorldState::effective, gone, come);
}

void ElasticJob::fall_short(std::size_t there) {
  if (state_ == ElasticState::waiting) return;
  move(ElasticState::waiting);
  state_deadline_ = now_ + options_.elastic_timeout;
  warn(cat(there, there == 1 ? " worker is" : " workers are",
           " left, and the world needs at least ", options_.limits.least,
           " (--min-np): waiting for replacements, at most ",
           seconds_text(options_.elastic_timeout), " (--elastic-timeout)"));
}

void ElasticJob::reform_at_commit() {
  const Muster now = muster();
  const auto least = static_cast<std::size_t>(std::max(options_.limits.least, 1));
  const auto all = static_cast<int>(now.staying.size() + now.warm + now.coming);
  const auto size =
      std::max(static_cast<std::size_t>(world_size(all, limits_now())), now.staying.size());
  std::vector<Incarnation> gone = now.leaving;
  std::vector<Incarnation> left;  // whose commit is not known yet
  for (const auto& member : effective_.members) {
    if (worker(member.incarnation).left_at != kNever) left.push_back(member.incarnation);
  }
  std::vector<Newcomer> come = newcomers(size - now.staying.size());
  // Who is needed works on until somebody comes in his place, or his time is over.
  const std::size_t missing = least - std::min(least, now.staying.size() + come.size());
  gone.erase(gone.begin(),
             gone.begin() + static_cast<std::ptrdiff_t>(std::min(missing, gone.size())));
  if (come.empty()) {
    joiners_due_ = kNever;
  } else if (now.coming > 0 && joiners_due_ != kNever && now_ < joiners_due_) {
    decide_at_ = std::min(decide_at_, joiners_due_);
    const bool can_wait = gone.empty() || now.staying.size() < least;
    if (can_wait || !proposed_.empty()) return;  // what is proposed stays so
    come.clear();
  }
  gone.insert(gone.end(), left.begin(), left.end());
  WorldDocument next;
  next.members = plan_world(effective_.members, gone, come);
  if (next.members.size() < least) return;
  const WorldDocument& last = proposed_.empty() ? effective_ : proposed_.rbegin()->second;
  if (membership(next) == membership(last)) return;
  publish(WorldState::proposed, gone, come);
}

void ElasticJob::publish(WorldState state, const std::vector<Incarnation>& gone,
                         const std::vector<Newcomer>& newcomers) {
  WorldDocument world;
  world.job_id = options_.job.job_id;
  world.generation = ++generation_;
  world.state = state;
  world.members = plan_world(effective_.members, gone, newcomers);
  actions_.emplace_back(action::PublishWorld{
      world, state == WorldState::effective ? change_text(world) : std::string()});
  joiners_due_ = kNever;
  if (state == WorldState::proposed) {
    for (const Incarnation incarnation : gone) worker(incarnation).may_have_left = true;
    proposed_.emplace(world.generation, std::move(world));
    return;
  }
  proposed_.clear();
  take_into_force(std::move(world));
}

void ElasticJob::take_into_force(WorldDocument world) {
  const WorldDocument before = std::exchange(effective_, std::move(world));
  // Another commit may have followed, to a world that is proposed still.
  std::vector<std::vector<Incarnation>> later;
  for (const auto& [generation, proposed] : proposed_) later.push_back(membership(proposed));
  const auto stays_for_sure = [&](Incarnation incarnation) {
    return std::all_of(later.begin(), later.end(), [&](const auto& incarnations) {
      return std::binary_search(incarnations.begin(), incarnations.end(), incarnation);
    });
  };
  std::set<Incarnation> members;
  for (const auto& member : effective_.members) {
    members.insert(member.incarnation);
    ElasticWorker& one = worker(member.incarnation);
    one.member = member;
    if (!stays_for_sure(member.incarnation)) one.may_have_left = true;
    if (one.standing == Standing::member || has_ended(one.state)) continue;
    move(member.incarnation - 1, Standing::member);
    renew_deadline(member.incarnation - 1);
  }
  for (const auto& member : before.members) {
    const ElasticWorker& one = worker(member.incarnation);
    if (members.count(member.incarnation) != 0 || has_ended(one.state) ||
        one.standing != Standing::member) {
      continue;
    }
    // Who is done takes the time that it needs to end.
    const bool is_done = state_ == ElasticState::ending && one.state == WorkerState::done;
    expect_exit(member.incarnation - 1);
    if (is_done) set_deadline(member.incarnation - 1, kNever);
  }
}

void ElasticJob::on(const event::Committed& event) {
  const ElasticWorker* const who = worker_of(event.host, event.incarnation, "committed");
  if (who == nullptr || stop_has_begun()) return;
  const auto proposed = proposed_.find(event.generation);
  if (proposed == proposed_.end())
    return;  // an effective one was faster, or another said it before
  const auto& members = proposed->second.members;
  const bool is_member = std::any_of(members.begin(), members.end(), [&](const WorldMember& one) {
    return one.incarnation == event.incarnation;
  });
  const bool was_member = who->standing == Standing::member;
  if (!is_member && !was_member) return;
  WorldDocument world = std::move(proposed->second);
  proposed_.erase(proposed_.begin(), std::next(proposed));
  // It stayed at that commit; there may have been another since.
  if (is_member) worker(event.incarnation).may_have_left = false;
  ++planned_resets_;
  cause_.reset();  // they have worked since: what fails now has a cause of its own
  world.state = WorldState::effective;
  // Joiners wait for just that.
  actions_.emplace_back(action::PublishWorld{world, change_text(world)});
  take_into_force(std::move(world));
  decide_within(kAtOnce);
}

}  // namespace hvd::driver
