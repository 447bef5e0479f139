// Who works in an elastic job: the workers of the first world, and later who is started and who is
// to go.
#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "base/text.h"
#include "driver/job/elastic_job.h"
#include "driver/job/plan.h"

namespace hvd::driver {
// ---- the first world ----

// Once, when every host of the list has said how many slots it has.
void ElasticJob::plan_list() {
  if (!options_.plan_list || list_is_planned_) return;
  std::vector<HostSlots> hosts;
  for (const auto& found : *found_) {
    hosts.push_back({found.host.name, slots_of(found.host)});
    if (hosts.back().slots == 0) return;
  }
  list_is_planned_ = true;
  const auto plan = plan_static(hosts, options_.processes, options_.oversubscribe);
  Status status = plan.status();
  if (status.ok()) status = check_least(options_.limits.least, hosts, *plan);
  if (!status.ok()) {
    JobFailure failure;
    failure.cause = status.message();
    fail(std::move(failure), kOwnTrouble);
    return;
  }
  if (!plan->oversubscription.empty()) warn(plan->oversubscription);
  for (const auto& member : plan->members) ++planned_[member.host];
}

void ElasticJob::form_first_world() {
  int room = 0;
  bool settled = true;
  bool program_is_missing = !found_->empty();
  for (const auto& found : *found_) {
    const auto visit = visit_of_.find(found.host.name);
    const auto trouble = troubles_.find(found.host.name);
    if (visit != visit_of_.end() && usable(visit->second)) room += slots_of(found.host);
    if (visit != visit_of_.end() && !usable(visit->second) &&
        hosts_[visit->second].state <= HostState::ready) {
      settled = false;
    }
    program_is_missing = program_is_missing && trouble != troubles_.end() &&
                         (trouble->second.step == Step::find_program ||
                          trouble->second.step == Step::change_directory);
  }
  if (settled && program_is_missing) {
    JobFailure failure;
    for (const auto& found : *found_) {
      failure.hosts.push_back({found.host.name, troubles_.at(found.host.name)});
    }
    const FailedHost first = failure.hosts.front();
    failure.host = first.name;
    failure.cause = cat(name_of(first.trouble.step), ": ", first.trouble.message);
    fail(std::move(failure), first.trouble.exit_code);
    return;
  }
  if (room < std::max(options_.limits.least, 1)) return;
  // Who says how many is waited for, for a while; else all that are on their way are.
  const TimePoint patience = begun_ + options_.job.start_timeout;
  const bool enough = options_.processes > 0 ? room >= options_.processes : settled;
  if (!enough && now_ < patience) {
    decide_at_ = std::min(decide_at_, patience);
    return;
  }
  const Limits limits = options_.limits;
  const auto places = staff(rooms(), {}, limits).launch;
  const auto size = static_cast<std::size_t>(world_size(static_cast<int>(places.size()), limits));
  std::vector<Newcomer> first;
  for (std::size_t i = 0; i < size; ++i) {
    const HostIndex host = visit_of_.at(places[i].host);
    launch(places[i], host, true);
    first.push_back({places[i].host, places[i].slot, workers_.size(), hosts_[host].address});
  }
  move(ElasticState::training);
  state_deadline_ = kNever;
  publish(WorldState::effective, {}, first);
  for (const auto& newcomer : first) {
    const ElasticWorker& one = worker(newcomer.incarnation);
    actions_.emplace_back(action::Launch{one.host, one.member});
  }
  for (std::size_t i = size; i < places.size(); ++i) {
    launch(places[i], visit_of_.at(places[i].host), false);
  }
}

// ---- who is started, and who is to go ----

Limits ElasticJob::limits_now() const {
  Limits limits = options_.limits;
  if (options_.planned_reset_limit >= 0 && planned_resets_ >= options_.planned_reset_limit) {
    const int size = static_cast<int>(effective_.members.size());
    limits.most = limits.most == 0 ? size : std::min(limits.most, size);
  }
  return limits;
}

int ElasticJob::slots_of(const HostSlots& found) const {
  const auto planned = planned_.find(found.name);
  const int least = planned == planned_.end() ? 0 : planned->second;
  if (found.slots > 0) return std::max(found.slots, least);
  const auto counted = counted_.find(found.name);
  return std::max(counted == counted_.end() ? 0 : slots_found(found, counted->second), least);
}

std::vector<Room> ElasticJob::rooms() const {
  std::vector<Room> rooms;
  for (const auto& found : *found_) {
    const auto visit = visit_of_.find(found.host.name);
    const bool rests =
        visit == visit_of_.end() || !usable(visit->second) || budget_.rests(found.host.name, now_);
    rooms.push_back({found.host.name, slots_of(found.host), rests});
  }
  return rooms;
}

std::vector<Occupant> ElasticJob::occupants() const {
  std::vector<Occupant> occupants;
  const auto add = [&](const ElasticWorker& one, bool member) {
    const bool leaves = one.standing == Standing::out || one.keeps_leaving;
    occupants.push_back({one.member.host, one.member.slot, one.member.incarnation, member, leaves});
  };
  for (const auto& member : effective_.members) {
    const ElasticWorker& one = worker(member.incarnation);
    if (one.standing == Standing::member && (!has_ended(one.state) || one.quiet)) add(one, true);
  }
  for (const std::size_t index : live_) {
    if (workers_[index].standing != Standing::member) add(workers_[index], false);
  }
  return occupants;
}

void ElasticJob::staff_slots() {
  const Staffing staffing = staff(rooms(), occupants(), limits_now());
  const std::set<Incarnation> released(staffing.release.begin(), staffing.release.end());
  for (const Incarnation incarnation : staffing.release) {
    const ElasticWorker& one = worker(incarnation);
    if (has_ended(one.state)) continue;  // quietly
    const bool is_found = std::any_of(
        found_->begin(), found_->end(),
        [&](const event::FoundHost& found) { return found.host.name == one.member.host; });
    const std::string why =
        cat("host ", one.member.host, is_found ? " has fewer slots now" : " is no longer named");
    if (one.standing == Standing::member) {
      ask_to_leave(one.member.incarnation - 1, why, false);
    } else {
      let_go(one.member.incarnation - 1, why);
    }
  }
  for (const auto& member : effective_.members) {
    ElasticWorker& one = worker(member.incarnation);
    const bool stays_after_all = !one.leaves.empty() && !one.keeps_leaving &&
                                 one.standing == Standing::member && !has_ended(one.state) &&
                                 released.count(member.incarnation) == 0;
    if (!stays_after_all) continue;
    say(cat(member.worker(), " stays after all"));
    one.leaves.clear();
    one.leave_by = kNever;
    renew_deadline(member.incarnation - 1);
  }
  for (const auto& place : staffing.launch) launch(place, visit_of_.at(place.host), false);
}

}  // namespace hvd::driver
