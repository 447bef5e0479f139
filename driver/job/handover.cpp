#include "driver/job/handover.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace hvd::driver {

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
