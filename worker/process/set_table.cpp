#include "worker/process/set_table.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "base/wire.h"

namespace hvd::worker {
namespace {

constexpr std::uint32_t kMostSets = 1U << 20;

}  // namespace

Result<SetTable> SetTable::of(const std::vector<std::vector<int>>& sets, bool shrink,
                              const WorldDocument& world) {
  SetTable table;
  table.next_ = 1;
  table.world_ = world;
  for (const auto& ranks : sets) {
    for (const int rank : ranks) {
      if (rank >= 0 && rank < static_cast<int>(world.members.size())) continue;
      return Status(Code::invalid_argument, cat("process set ", table.next_, ": there is no rank ",
                                                rank, " in a world of ", world.members.size()));
    }
    const int id = table.next_;
    table.added(id, ranks);
    if (shrink) table.let_shrink(id);
  }
  return table;
}

void SetTable::added(int id, const std::vector<int>& ranks, bool by_members) {
  Set set;
  set.by_members = by_members;
  for (const int rank : ranks) {
    set.members.push_back(world_.members[static_cast<std::size_t>(rank)].incarnation);
  }
  sets_[id] = std::move(set);
  next_ = std::max(next_, id + 1);
}

void SetTable::let_shrink(int id) {
  if (const auto found = sets_.find(id); found != sets_.end()) found->second.shrinks = true;
}

void SetTable::enter(const WorldDocument& world) {
  for (auto& [id, set] : sets_) {
    set.is_old = world.generation != world_.generation || set.is_old;
    std::vector<std::uint64_t> left;
    std::string gone;
    for (const auto incarnation : set.members) {
      if (world.find(incarnation) != nullptr) {
        left.push_back(incarnation);
        continue;
      }
      const auto* const member = world_.find(incarnation);
      gone += cat(gone.empty() ? "" : ", ",
                  member == nullptr ? cat("incarnation ", incarnation) : member->worker());
    }
    if (set.lost.empty() && (!set.shrinks || left.empty())) set.lost = gone;
    set.members = std::move(left);
  }
  world_ = world;
}

std::optional<std::vector<int>> SetTable::ranks_of(const Set& set) const {
  if (!set.lost.empty()) return std::nullopt;
  std::vector<int> ranks;
  for (const auto incarnation : set.members) {
    const auto* const member = world_.find(incarnation);
    if (member == nullptr) return std::nullopt;
    ranks.push_back(member->rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::map<int, runtime::RestoredSet> SetTable::ranks() const {
  std::map<int, runtime::RestoredSet> all;
  for (const auto& [id, set] : sets_) {
    if (auto ranks = ranks_of(set)) {
      all.emplace(id, runtime::RestoredSet{std::move(*ranks), set.by_members});
    }
  }
  return all;
}

std::optional<std::string> SetTable::lost(int id) const {
  const auto found = sets_.find(id);
  if (found == sets_.end() || found->second.lost.empty()) return std::nullopt;
  return found->second.lost;
}

std::optional<int> SetTable::take_up(const std::vector<int>& ranks, bool by_members) {
  for (auto& [id, set] : sets_) {
    if (!set.is_old || set.by_members != by_members || ranks_of(set) != ranks) continue;
    set.is_old = false;
    return id;
  }
  return std::nullopt;
}

std::string SetTable::encode() const {
  WireWriter out;
  out.i32(next_).u32(static_cast<std::uint32_t>(sets_.size()));
  for (const auto& [id, set] : sets_) {
    out.i32(id).boolean(set.by_members).boolean(set.shrinks).boolean(set.is_old).str(set.lost);
    out.u32(static_cast<std::uint32_t>(set.members.size()));
    for (const auto incarnation : set.members) out.u64(incarnation);
  }
  return out.str(world_.encode()).take();
}

Result<SetTable> SetTable::decode(std::string_view bytes) {
  WireReader in(bytes);
  SetTable table;
  table.next_ = in.i32();
  const auto sets = in.u32();
  for (std::uint32_t i = 0; i < std::min(sets, kMostSets) && !in.failed(); ++i) {
    const int id = in.i32();
    Set set;
    set.by_members = in.boolean();
    set.shrinks = in.boolean();
    set.is_old = in.boolean();
    set.lost = in.str();
    const auto members = in.u32();
    for (std::uint32_t j = 0; j < members && !in.failed(); ++j) set.members.push_back(in.u64());
    table.sets_.emplace(id, std::move(set));
  }
  const auto world = in.str();
  HVD_RETURN_IF_ERROR(in.finish("the process sets of rank 0"));
  auto document = WorldDocument::decode(world);
  HVD_RETURN_IF_ERROR(document.status().with_context("the process sets of rank 0"));
  table.world_ = std::move(*document);
  return table;
}

}  // namespace hvd::worker
