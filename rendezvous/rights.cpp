#include "rendezvous/rights.h"

#include <algorithm>
#include <utility>

#include "base/printable.h"
#include "base/protocol/world_document.h"
#include "base/text.h"

namespace hvd::rendezvous {
namespace {

Status refusal(std::string why) { return {Code::permission_denied, std::move(why)}; }

// The number before the first point: of "3.1" and of "3.17.1" that is 3.
std::string_view first_part(std::string_view text) { return text.substr(0, text.find('.')); }

}  // namespace

void Rights::set_members(std::uint64_t generation, std::vector<Incarnation> members,
                         bool is_in_force) {
  if (is_in_force) in_force_ = generation;
  auto& kept = members_[generation];
  count_ += members.size() - kept.size();
  kept = std::move(members);

  auto oldest = members_.begin();
  while (members_.size() > kWorlds && count_ > kMembers) {
    if (oldest->first == in_force_) ++oldest;
    count_ -= oldest->second.size();
    oldest = members_.erase(oldest);
  }
}

Status Rights::check_write(Incarnation worker, std::string_view scope, std::string_view key,
                           std::string_view value, std::string_view current) const {
  if (worker == 0) return {};
  if (scope == kWorldScope) return refusal("only hvdrun writes the world");
  if (scope == kCommitScope) return check_commit(worker, key, value, current);
  return scope.starts_with(kWorldScopePrefix) ? check_entry(worker, scope, key) : Status();
}

Status Rights::check_entry(Incarnation worker, std::string_view scope, std::string_view key) const {
  scope.remove_prefix(std::string_view(kWorldScopePrefix).size());
  const auto generation = first_part(scope);
  const auto* const members = members_of(generation);
  if (members == nullptr) {
    return refusal(
        cat("there is no world of generation ", quoted(generation), " any more, or yet"));
  }

  const auto self = std::find(members->begin(), members->end(), worker);
  if (self == members->end()) {
    return refusal(
        cat("the worker of incarnation ", worker, " is no member of generation ", generation));
  }

  const auto rank = self - members->begin();
  if (key == cat(kRankKeyPrefix, rank) || key == kGivenUpKey) return {};
  if (key == kSetsKey && rank == 0) return {};
  return refusal(cat("the entry ", quoted(key), " of generation ", generation,
                     " does not belong to rank ", rank));
}

Status Rights::check_commit(Incarnation worker, std::string_view key, std::string_view value,
                            std::string_view current) const {
  if (key != kHighWaterKey) return refusal("a worker writes nothing there but its commits");
  const auto generation = first_part(value);
  const auto* const members = members_of(generation);
  if (members == nullptr || members->empty() || members->front() != worker) {
    return refusal(cat("only rank 0 of generation ", quoted(generation),
                       " says what that has committed, and the worker of incarnation ", worker,
                       " is not that"));
  }

  const auto commit = commit_id_from_text(value);
  if (!commit.ok()) return refusal(cat(quoted(value), " is not a commit"));
  const auto before = commit_id_from_text(current);
  const auto newest = std::max(in_force_, before.ok() ? before->generation : 0);
  if (newest > commit->generation) {
    return refusal(
        cat("generation ", generation, " is over: generation ", newest, " has taken its place"));
  }
  return {};
}

const std::vector<Incarnation>* Rights::members_of(std::string_view generation) const {
  const auto number = parse_number<std::uint64_t>(generation);
  const auto found = number ? members_.find(*number) : members_.end();
  return found == members_.end() ? nullptr : &found->second;
}

}  // namespace hvd::rendezvous
