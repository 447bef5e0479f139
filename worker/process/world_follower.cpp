#include "worker/process/world_follower.h"

#include <set>
#include <utility>

#include "base/text.h"

namespace hvd::worker {
namespace {

std::set<std::uint64_t> incarnations(const WorldDocument& document) {
  std::set<std::uint64_t> found;
  for (const auto& member : document.members) found.insert(member.incarnation);
  return found;
}

}  // namespace

bool WorldFollower::hear(WorldDocument document) {
  auto& known = document.state == WorldState::effective ? effective_ : proposed_;
  if (known && known->generation >= document.generation) return false;
  known = std::move(document);
  return known->state == WorldState::effective && entered_ != 0 && known->generation > entered_ &&
         !has_left_;
}

void WorldFollower::committed(WorldDocument document) {
  document.state = WorldState::effective;
  has_left_ = has_left_ || document.last;
  hear(std::move(document));
}

bool WorldFollower::contains(const WorldDocument& document) const {
  return !document.last && document.find(incarnation_) != nullptr;
}

const WorldDocument* WorldFollower::next() const {
  const bool is_newer = !has_left_ && effective_ && effective_->generation > entered_;
  return is_newer && contains(*effective_) ? &*effective_ : nullptr;
}

bool WorldFollower::is_out() const {
  if (has_left_) return true;
  return entered_ != 0 && effective_ && effective_->generation > entered_ && !contains(*effective_);
}

const WorldDocument* WorldFollower::proposed() const {
  if (!proposed_ || !effective_ || proposed_->generation <= effective_->generation) return nullptr;
  const bool changes = proposed_->last || incarnations(*proposed_) != incarnations(*effective_);
  return changes ? &*proposed_ : nullptr;
}

std::vector<const WorldMember*> members_lost(const WorldDocument& before,
                                             const WorldDocument& after) {
  const auto there = incarnations(after);
  std::vector<const WorldMember*> lost;
  for (const auto& member : before.members) {
    if (!there.contains(member.incarnation)) lost.push_back(&member);
  }
  return lost;
}

std::string change_text(const WorldDocument& before, const WorldDocument& after) {
  constexpr std::size_t kNamed = 6;
  const auto lost = members_lost(before, after);
  std::vector<std::string> named;
  for (const auto* const member : lost) {
    if (named.size() == kNamed) break;
    named.push_back(member->ranked());
  }

  std::string text = lost.empty() ? std::string() : cat(" without ", join(named, ", "));
  if (lost.size() > kNamed) text += cat(" and ", lost.size() - kNamed, " more");
  if (const auto come = members_lost(after, before).size(); come > 0) {
    text += cat(lost.empty() ? "" : ",", " with ", come, " new worker", come == 1 ? "" : "s");
  }
  return text.empty() ? std::string(" with the same members") : text;
}

}  // namespace hvd::worker
