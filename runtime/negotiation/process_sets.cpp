#include "runtime/negotiation/process_sets.h"

#include "base/text.h"

namespace hvd::runtime {
namespace {

std::string list(const RankSet& ranks) {
  std::vector<std::string> parts;
  for (const auto& interval : ranks.intervals()) {
    const auto last = interval.end - 1;
    parts.push_back(interval.begin == last ? cat(last) : cat(interval.begin, " to ", last));
  }
  return join(parts, ", ");
}

}  // namespace

ProcessSets::ProcessSets(int world_size) {
  sets_.emplace(kGlobalSet, RankSet::range(0, static_cast<RankSet::Value>(world_size)));
}

std::optional<int> ProcessSets::find(const RankSet& members) const {
  for (const auto& [id, ranks] : sets_) {
    if (ranks == members) return id;
  }
  return std::nullopt;
}

Status ProcessSets::check_add(const Request& request) const {
  const auto members = RankSet::of_ranks(request.ranks);
  const auto existing = find(members);
  if (!existing) return {};
  return {Code::already_exists,
          cat(kind_name(request.kind), " \"", request.name, "\": process set ", *existing,
              *existing == kGlobalSet ? " (the global one)" : "", " already consists of ranks ",
              list(members))};
}

Status ProcessSets::check_remove(const Request& request) const {
  if (request.process_set == kGlobalSet) {
    return {Code::invalid_argument, cat(kind_name(request.kind), " \"", request.name,
                                        "\": the global process set cannot be removed")};
  }
  if (contains(request.process_set)) return {};
  return {Code::not_found,
          cat(kind_name(request.kind), " \"", request.name, "\": there is no process set ",
              request.process_set, was_removed(request.process_set) ? " any more" : "")};
}

Status ProcessSets::check_member(int id, int rank) const {
  if (!contains(id)) {
    return {Code::not_found,
            cat("there is no process set ", id, was_removed(id) ? " any more" : "")};
  }
  if (members(id).contains(static_cast<RankSet::Value>(rank))) return {};
  return {Code::permission_denied, cat("rank ", rank, " is not in process set ", id,
                                       ", which consists of ranks ", list(members(id)))};
}

}  // namespace hvd::runtime
