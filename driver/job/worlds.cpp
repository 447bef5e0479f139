#include "driver/job/worlds.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "driver/job/plan.h"

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

namespace {

// A place in the line of one host: a survivor's, a newcomer's, or that of a worker that goes.
struct Place {
  int slot = 0;
  const WorldMember* survivor = nullptr;
  const Newcomer* newcomer = nullptr;
  bool empty() const { return survivor == nullptr && newcomer == nullptr; }
};

using Line = std::vector<Place>;

bool has_survivor(const Line& line) {
  return std::any_of(line.begin(), line.end(),
                     [](const Place& place) { return place.survivor != nullptr; });
}

std::vector<Line> lines_of(const std::vector<WorldMember>& previous,
                           const std::unordered_set<Incarnation>& gone) {
  std::vector<Line> lines;
  for (const auto& member : previous) {
    if (member.rank == 0 || member.host != previous[static_cast<std::size_t>(member.rank) - 1].host)
      lines.emplace_back();
    lines.back().push_back({member.slot, gone.count(member.incarnation) != 0 ? nullptr : &member});
  }
  return lines;
}

void take_in(Line& line, const Newcomer& newcomer) {
  const auto vacant = std::find_if(line.begin(), line.end(), [&](const Place& place) {
    return place.slot == newcomer.slot && place.empty();
  });
  if (vacant != line.end()) {
    vacant->newcomer = &newcomer;
    return;
  }
  const auto behind = std::find_if(line.begin(), line.end(),
                                   [&](const Place& place) { return place.slot > newcomer.slot; });
  line.insert(behind, {newcomer.slot, nullptr, &newcomer});
}

void let_a_survivor_lead(std::vector<Line>& lines) {
  const auto first = std::find_if(lines.begin(), lines.end(), has_survivor);
  if (first == lines.end()) return;
  // Only hosts without survivors, and newcomers, step behind.
  std::rotate(lines.begin(), first, first + 1);
  Line& line = lines.front();
  const auto leader = std::find_if(line.begin(), line.end(),
                                   [](const Place& place) { return place.survivor != nullptr; });
  std::rotate(line.begin(), leader, leader + 1);
}

}  // namespace

std::vector<WorldMember> plan_world(const std::vector<WorldMember>& previous,
                                    const std::vector<Incarnation>& gone,
                                    const std::vector<Newcomer>& newcomers) {
  std::vector<Line> lines = lines_of(previous, {gone.begin(), gone.end()});
  std::unordered_map<std::string_view, std::size_t> line_of;
  std::size_t next = 0;
  for (const auto& member : previous) {
    if (line_of.try_emplace(member.host, next).second) ++next;
  }
  for (const auto& newcomer : newcomers) {
    const auto [line, is_new] = line_of.try_emplace(newcomer.host, lines.size());
    if (is_new) lines.emplace_back();
    take_in(lines[line->second], newcomer);
  }
  for (auto& line : lines) std::erase_if(line, [](const Place& place) { return place.empty(); });
  std::erase_if(lines, [](const Line& line) { return line.empty(); });
  let_a_survivor_lead(lines);

  std::vector<WorldMember> members;
  members.reserve(previous.size() + newcomers.size());
  for (const auto& line : lines) {
    for (const auto& place : line) {
      WorldMember member;
      if (place.survivor != nullptr) {
        member = *place.survivor;
      } else {
        member.host = place.newcomer->host;
        member.slot = place.newcomer->slot;
        member.incarnation = place.newcomer->incarnation;
        member.address = place.newcomer->address;
      }
      member.rank = static_cast<int>(members.size());
      members.push_back(std::move(member));
    }
  }
  assign_local_and_cross_ranks(members);
  return members;
}

}  // namespace hvd::driver
