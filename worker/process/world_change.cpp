#include "worker/process/world_change.h"

#include <algorithm>
#include <cstdint>
#include <set>

#include "base/text.h"

namespace hvd::worker {

std::vector<const WorldMember*> members_lost(const WorldDocument& before,
                                             const WorldDocument& after) {
  std::set<std::uint64_t> there;
  for (const auto& member : after.members) there.insert(member.incarnation);

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
    named.push_back(cat("rank ", member->rank, " (", member->worker(), ") on host ", member->host));
  }

  std::string text = lost.empty() ? std::string() : cat(" without ", join(named, ", "));
  if (lost.size() > kNamed) text += cat(" and ", lost.size() - kNamed, " more");
  if (const auto come = members_lost(after, before).size(); come > 0) {
    text += cat(lost.empty() ? "" : ",", " with ", come, " new worker", come == 1 ? "" : "s");
  }
  return text.empty() ? std::string(" with the same members") : text;
}

}  // namespace hvd::worker
