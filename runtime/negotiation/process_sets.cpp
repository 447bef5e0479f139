#include "runtime/negotiation/process_sets.h"

#include <algorithm>

#include "base/text.h"

namespace hvd::runtime {

std::string ranks_text(const RankSet& ranks) {
  std::vector<std::string> parts;
  for (const auto& interval : ranks.intervals()) {
    const auto last = interval.end - 1;
    parts.push_back(interval.begin == last ? cat(last) : cat(interval.begin, " to ", last));
  }
  return join(parts, ", ");
}

int position_in(const RankSet& members, int rank) {
  const auto before = RankSet::range(0, static_cast<RankSet::Value>(rank));
  return static_cast<int>(members.intersection(before).size());
}

ProcessSets::ProcessSets(int world_size) {
  sets_.emplace(kGlobalSet, RankSet::range(0, static_cast<RankSet::Value>(world_size)));
}

Result<ProcessSets> ProcessSets::of(const std::vector<std::vector<int>>& sets, int world_size) {
  ProcessSets all(world_size);
  for (const auto& ranks : sets) {
    Request request;
    request.kind = Kind::add_process_set;
    request.name = cat(all.next());
    request.ranks = ranks;
    HVD_RETURN_IF_ERROR(check_request(request, world_size));
    HVD_RETURN_IF_ERROR(all.check_add(request));
    all.add(RankSet::of_ranks(ranks));
  }
  return all;
}

Result<ProcessSets> ProcessSets::restored(const std::map<int, RestoredSet>& sets, int next,
                                          int world_size) {
  ProcessSets all(world_size);
  for (const auto& [id, set] : sets) {
    Request request;
    request.kind = Kind::add_process_set;
    request.name = cat(id);
    request.ranks = set.ranks;
    HVD_RETURN_IF_ERROR(check_request(request, world_size));
    if (id <= kGlobalSet || id >= next) {
      return Status(Code::invalid_argument, cat("there can be no process set ", id));
    }
    all.sets_.emplace(id, RankSet::of_ranks(set.ranks));
    if (set.by_members) all.by_members_.insert(id);
  }
  all.next_ = next;
  return all;
}

void ProcessSets::add(const RankSet& members, bool by_members) {
  if (by_members) by_members_.insert(next_);
  sets_.emplace(next_++, members);
}

void ProcessSets::remove(int id) {
  sets_.erase(id);
  by_members_.erase(id);
}

// Members who add a set by themselves may have several of the same ranks: parts of a program that
// do not know of each other each have one.
Status ProcessSets::check_add(const Request& request) const {
  if (request.by_members) return {};
  const auto members = RankSet::of_ranks(request.ranks);
  const auto existing = std::find_if(sets_.begin(), sets_.end(), [&](const auto& set) {
    return set.second == members && !is_by_members(set.first);
  });
  if (existing == sets_.end()) return {};
  const int id = existing->first;
  return {Code::already_exists,
          cat(kind_name(request.kind), " \"", request.name, "\": process set ", id,
              id == kGlobalSet ? " (the global one)" : "", " already consists of ranks ",
              ranks_text(members))};
}

Status ProcessSets::check_remove(const Request& request) const {
  if (request.process_set == kGlobalSet) {
    return {Code::invalid_argument, cat(kind_name(request.kind), " \"", request.name,
                                        "\": the global process set cannot be removed")};
  }
  if (contains(request.process_set)) {
    const bool by_members = is_by_members(request.process_set);
    if (by_members == request.by_members) return {};
    return {
        Code::invalid_argument,
        cat(kind_name(request.kind), " \"", request.name, "\": process set ", request.process_set,
            " was added by ", by_members ? "its members alone" : "all ranks", ", who remove it")};
  }
  return {Code::not_found,
          cat(kind_name(request.kind), " \"", request.name, "\": there is no process set ",
              request.process_set, was_removed(request.process_set) ? " any more" : "")};
}

Status ProcessSets::check_exists(int id) const {
  if (contains(id)) return {};
  return {Code::not_found, cat("there is no process set ", id, was_removed(id) ? " any more" : "")};
}

Status ProcessSets::check_member(int id, int rank) const {
  HVD_RETURN_IF_ERROR(check_exists(id));
  if (members(id).contains(static_cast<RankSet::Value>(rank))) return {};
  return {Code::permission_denied, cat("rank ", rank, " is not in process set ", id,
                                       ", which consists of ranks ", ranks_text(members(id)))};
}

}  // namespace hvd::runtime
