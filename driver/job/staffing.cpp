#include "driver/job/staffing.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace hvd::driver {
namespace {

// The use of one room.
struct Use {
  const Room* room = nullptr;
  std::vector<int> taken;  // slots
  bool has_members = false;
};

void fill(const Use& use, std::size_t& left, std::vector<SlotPlace>& launch) {
  if (use.room->rests) return;
  std::vector<int> taken = use.taken;
  for (const auto* const slots : {&use.room->resting_slots, &use.room->drained_slots}) {
    taken.insert(taken.end(), slots->begin(), slots->end());
  }
  std::sort(taken.begin(), taken.end());
  auto next_taken = taken.begin();
  for (int slot = 0; slot < use.room->slots && left > 0; ++slot) {
    bool is_taken = false;  // and it may rest, too
    for (; next_taken != taken.end() && *next_taken == slot; ++next_taken) is_taken = true;
    if (is_taken) continue;
    launch.push_back({use.room->host, slot, use.room->slots});
    --left;
  }
}

bool has_slot(const Room& room, int slot) {
  const auto& drained = room.drained_slots;
  return slot < room.slots && std::find(drained.begin(), drained.end(), slot) == drained.end();
}

}  // namespace

Staffing staff(const std::vector<Room>& rooms, const std::vector<Occupant>& occupants,
               const Limits& limits) {
  const std::size_t most = limits.most == 0
                               ? kMaxWorkers
                               : std::min(kMaxWorkers, static_cast<std::size_t>(limits.most) +
                                                           static_cast<std::size_t>(limits.spares));

  std::vector<Use> uses;
  uses.reserve(rooms.size());
  std::unordered_map<std::string_view, std::size_t> use_of;
  use_of.reserve(rooms.size());
  for (const auto& room : rooms) {
    use_of.emplace(room.host, uses.size());
    uses.push_back({&room, {}, false});
  }

  Staffing staffing;
  std::size_t kept = 0;
  for (const auto& occupant : occupants) {
    const auto use = use_of.find(occupant.host);
    if (occupant.leaves) {
      if (use != use_of.end()) uses[use->second].taken.push_back(occupant.slot);
      continue;
    }
    if (use == use_of.end() || !has_slot(rooms[use->second], occupant.slot) || kept == most) {
      staffing.release.push_back(occupant.incarnation);
      continue;
    }
    ++kept;
    uses[use->second].taken.push_back(occupant.slot);
    uses[use->second].has_members = uses[use->second].has_members || occupant.member;
  }

  std::size_t left = most - kept;
  for (const bool with_members : {true, false}) {
    for (const auto& use : uses) {
      if (left > 0 && use.has_members == with_members) fill(use, left, staffing.launch);
    }
  }
  return staffing;
}

int world_size(int workers, const Limits& limits) {
  const int wanted = std::max(workers - limits.spares, std::min(workers, limits.least));
  return limits.most == 0 ? wanted : std::min(wanted, limits.most);
}

std::vector<Incarnation> who_stays_on(std::vector<Leaver> leavers, std::size_t missing,
                                      const std::vector<Incarnation>& going_on,
                                      const std::vector<std::vector<Incarnation>>& worlds) {
  std::stable_sort(leavers.begin(), leavers.end(),
                   [](const Leaver& a, const Leaver& b) { return a.leave_by > b.leave_by; });
  std::vector<Incarnation> staying;
  std::unordered_set<Incarnation> next(going_on.begin(), going_on.end());
  const auto keep = [&](Incarnation incarnation) {
    staying.push_back(incarnation);
    next.insert(incarnation);
  };

  // First the workers that hand the state over, as few as can be: they may be enough for the size.
  std::vector<const std::vector<Incarnation>*> without;
  for (const auto& world : worlds) {
    const auto goes_on = [&](Incarnation member) { return next.count(member) != 0; };
    if (std::none_of(world.begin(), world.end(), goes_on)) without.push_back(&world);
  }
  while (!without.empty()) {
    std::unordered_map<Incarnation, std::size_t> times;
    for (const auto* const world : without) {
      for (const Incarnation member : *world) ++times[member];
    }
    const auto of_fewer = [&](const Leaver& a, const Leaver& b) {
      return times[a.incarnation] < times[b.incarnation];
    };
    const auto heir = std::max_element(leavers.begin(), leavers.end(), of_fewer);
    if (heir == leavers.end() || times[heir->incarnation] == 0) break;
    keep(heir->incarnation);
    std::erase_if(without, [&](const auto* const world) {
      return std::find(world->begin(), world->end(), heir->incarnation) != world->end();
    });
  }

  for (const auto& leaver : leavers) {
    if (staying.size() >= missing) break;
    if (next.count(leaver.incarnation) == 0) keep(leaver.incarnation);
  }
  return staying;
}

}  // namespace hvd::driver
