// The staff of an elastic job: the workers of the first world, and later those to start and those
// to go.
#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "base/text.h"
#include "driver/job/job.h"
#include "driver/job/plan.h"

namespace hvd::driver {
// ---- the first world ----

// Once, when every host of the list has said how many slots it has.
void Job::plan_list() {
  if (!options_.elastic.plan_list || roster_.is_planned()) return;
  std::vector<HostSlots> hosts;
  for (const auto& found : roster_.named()) {
    hosts.push_back({found.host.name, roster_.slots_of(found.host)});
    if (hosts.back().slots == 0) return;
  }
  roster_.plan_slots({});
  const auto plan = plan_static(hosts, options_.elastic.processes, options_.elastic.oversubscribe);
  Status status = plan.status();
  if (status.ok()) status = check_least(options_.elastic.limits.least, hosts, *plan);
  if (!status.ok()) {
    fail_because(status.message());
    return;
  }
  if (!plan->oversubscription.empty()) warn(plan->oversubscription);
  std::map<std::string, int> slots;
  for (const auto& member : plan->members) ++slots[member.host];
  roster_.plan_slots(std::move(slots));
}

void Job::form_first_world() {
  int room = 0;
  bool settled = true;
  bool program_is_missing = !roster_.used().empty();
  int room_in_order = 0;  // on hosts before the first that is still on its way

  for (const auto& found : roster_.used()) {
    const auto host = hosts_.current(found.host.name);
    const HostError* const error = roster_.error_of(found.host.name);
    const bool is_usable = host && hosts_.is_usable(*host);
    if (is_usable) room += roster_.slots_of(found.host);
    if (is_usable && settled) room_in_order += roster_.slots_of(found.host);
    if (host && !is_usable && hosts_[*host].state <= HostState::ready) {
      settled = false;
    }
    program_is_missing =
        program_is_missing && error != nullptr &&
        (error->step == Step::find_program || error->step == Step::change_directory);
  }

  if (settled && program_is_missing) {
    JobFailure failure;
    for (const auto& found : roster_.used()) {
      failure.hosts.push_back({found.host.name, *roster_.error_of(found.host.name)});
    }
    const FailedHost first = failure.hosts.front();
    failure.host = first.name;
    failure.cause = cat(name_of(first.error.step), ": ", first.error.message);
    fail(std::move(failure), first.error.exit_code);
    return;
  }

  if (room < std::max(options_.elastic.limits.least, 1)) return;
  // As many as are wanted are waited for, for a while, and the hosts that were named first; without
  // a number all that are on their way.
  const TimePoint deadline = begun_ + options_.start_timeout;
  const bool enough =
      options_.elastic.processes > 0 ? room_in_order >= options_.elastic.processes : settled;
  if (!enough && now_ < deadline) {
    deadlines_.decision = std::min(deadlines_.decision, deadline);
    return;
  }

  const Limits limits = options_.elastic.limits;
  const auto places = staff(roster_.rooms(now_), {}, limits).launch;
  const auto size = static_cast<std::size_t>(world_size(static_cast<int>(places.size()), limits));
  begin_world({places.begin(), places.begin() + static_cast<std::ptrdiff_t>(size)}, {});
  for (std::size_t i = size; i < places.size(); ++i) {
    launch(places[i], *hosts_.current(places[i].host), false);
  }
}

// The members are workers that are started for it.
void Job::begin_world(const std::vector<SlotPlace>& places, const std::vector<Incarnation>& gone) {
  std::vector<Newcomer> first;
  for (const auto& place : places) {
    const HostIndex host = *hosts_.current(place.host);
    launch(place, host, true);
    workers_[workers_.size() - 1].has_state = true;  // the state begins with what the program makes
    first.push_back({place.host, place.slot, workers_.size(), hosts_[host].address});
  }
  if (state_ != JobState::running) move(JobState::running);
  deadlines_.state = kNever;
  group_.begin(now_);
  publish(WorldState::effective, gone, first);
  for (const auto& newcomer : first) {
    const JobWorker& one = workers_.of(newcomer.incarnation);
    actions_.emplace_back(action::Launch{one.host, one.member});
  }
}

// ---- workers to start, and workers to leave ----

bool Job::has_grown_enough() const {
  const int most = options_.elastic.planned_reset_limit;
  return most >= 0 && planned_resets_ >= most;
}

void Job::count_planned_reset() {
  if (++planned_resets_ != options_.elastic.planned_reset_limit) return;
  warn(cat("the world has had ",
           counted(static_cast<std::size_t>(planned_resets_), "planned change"),
           " (--planned-reset-limit): it grows no more"));
}

Limits Job::limits_now() const {
  Limits limits = roster_.requests().bound(options_.elastic.limits);
  if (has_grown_enough()) {
    const int size = static_cast<int>(worlds_.in_force().members.size());
    limits.most = limits.most == 0 ? size : std::min(limits.most, size);
  }
  return limits;
}

int Job::slots_at(HostIndex host) const {
  const event::FoundHost* const found = roster_.find_named(hosts_[host].name);
  return found == nullptr ? 0 : roster_.slots_of(found->host);
}

std::vector<Occupant> Job::occupants() const {
  std::vector<Occupant> occupants;
  const auto add = [&](const JobWorker& one, bool member) {
    const bool leaves = one.membership == MemberStatus::removed ||
                        one.leaving == Leaving::for_good || one.pace == Pace::gives_way;
    occupants.push_back({one.member.host, one.member.slot, one.member.incarnation, member, leaves});
  };
  for (const auto& member : worlds_.in_force().members) {
    const JobWorker& one = workers_.of(member.incarnation);
    if (one.is_live_member() || one.membership == MemberStatus::exited_before_init) add(one, true);
  }
  // If there are more than enough, those go whose agents had no state for them, or an older one.
  std::vector<std::size_t> others;
  for (const std::size_t index : workers_.live()) {
    if (workers_[index].membership != MemberStatus::member) others.push_back(index);
  }
  std::stable_sort(others.begin(), others.end(), [this](std::size_t a, std::size_t b) {
    return workers_[a].kept > workers_[b].kept;
  });
  for (const std::size_t index : others) add(workers_[index], false);
  return occupants;
}

// A world that was larger for a moment, to hand the state over, and whose members stay after all.
void Job::release_those_beyond_the_most(std::set<Incarnation>& released) {
  const int most = limits_now().most;
  if (most == 0) return;
  int staying = 0;
  for (const auto& member : worlds_.in_force().members) {
    const JobWorker& one = workers_.of(member.incarnation);
    const bool leaves = one.leaving == Leaving::for_good || released.count(member.incarnation) != 0;
    if (one.membership != MemberStatus::member || has_ended(one.state) || leaves) continue;
    if (++staying <= most) continue;
    released.insert(member.incarnation);
    ask_to_leave(member.incarnation - 1, release_reason(one), false);
  }
}

void Job::staff_slots() {
  find_places_for_slow();
  const Staffing staffing = staff(roster_.rooms(now_), occupants(), limits_now());
  std::set<Incarnation> released(staffing.release.begin(), staffing.release.end());
  for (const Incarnation incarnation : staffing.release) {
    const JobWorker& one = workers_.of(incarnation);
    if (has_ended(one.state)) continue;  // quietly
    send_away(one.member.incarnation - 1, release_reason(one), false);
  }
  release_those_beyond_the_most(released);
  release_slow(released);

  for (const std::size_t index : std::set<std::size_t>(workers_.live())) {
    JobWorker& one = workers_[index];
    if (!one.is_to_leave() || one.membership == MemberStatus::removed) continue;
    if (one.leaving == Leaving::asked && released.count(one.member.incarnation) == 0) {
      say(cat(one.member.worker(), " stays after all"));
      one.leaving = Leaving::no;
      one.why_it_leaves.clear();
      one.leave_by = kNever;
      workers_.renew_deadline(index);
    } else if (one.membership != MemberStatus::member &&
               !worlds_.is_proposed(one.member.incarnation)) {
      let_go(index, one.why_it_leaves);
    }
  }

  // Some that failed live, and their slots come free when they end.
  auto staying = occupants();
  std::erase_if(staying, [this](const Occupant& one) {
    return workers_.of(one.incarnation).membership == MemberStatus::removed;
  });
  tell_failures(staff(roster_.rooms(now_), staying, limits_now()).launch);
  for (const auto& place : staffing.launch) launch(place, *hosts_.current(place.host), false);
}

}  // namespace hvd::driver
