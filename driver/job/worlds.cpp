#include "driver/job/worlds.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace hvd::driver {

std::vector<Incarnation> membership(const WorldDocument& world) {
  std::vector<Incarnation> members;
  for (const auto& member : world.members) members.push_back(member.incarnation);
  std::sort(members.begin(), members.end());
  return members;
}

bool has_member(const WorldDocument& world, Incarnation incarnation) {
  return world.find(incarnation) != nullptr;
}

WorldDocument Worlds::plan_next(WorldState state, const std::vector<Incarnation>& gone,
                                const std::vector<Newcomer>& newcomers) {
  WorldDocument world;
  world.job_id = in_force_.job_id;
  world.generation = ++generation_;
  world.state = state;
  world.members = plan_world(in_force_.members, gone, newcomers);
  return world;
}

void Worlds::propose(WorldDocument world) {
  const auto generation = world.generation;
  proposed_.emplace(generation, std::move(world));
}

void Worlds::withdraw_proposed() {
  for (const auto& [generation, world] : proposed_) {
    if (world.last) withdrawn_last_.insert(generation);
  }
  proposed_.clear();
}

WorldDocument Worlds::take_into_force(WorldDocument world) {
  return std::exchange(in_force_, std::move(world));
}

std::optional<WorldDocument> Worlds::take_proposed(std::uint64_t generation) {
  const auto proposed = proposed_.find(generation);
  if (proposed == proposed_.end()) return std::nullopt;
  WorldDocument world = std::move(proposed->second);
  proposed_.erase(proposed_.begin(), std::next(proposed));
  return world;
}

bool Worlds::is_change_proposed() const {
  return !proposed_.empty() && membership(proposed_.rbegin()->second) != membership(in_force_);
}

bool Worlds::is_proposed(Incarnation incarnation) const {
  return std::any_of(proposed_.begin(), proposed_.end(), [&](const auto& proposed) {
    return has_member(proposed.second, incarnation);
  });
}

std::vector<Incarnation> Worlds::in_all_proposed() const {
  std::vector<Incarnation> common = membership(in_force_);
  for (const auto& [generation, world] : proposed_) {
    const auto members = membership(world);
    std::erase_if(common, [&](Incarnation incarnation) {
      return !std::binary_search(members.begin(), members.end(), incarnation);
    });
  }
  return common;
}

}  // namespace hvd::driver
