#include "runtime/core/world_spec.h"

#include <set>

namespace hvd::runtime {

bool WorldSpec::has_multi_rank_hosts() const {
  std::set<std::string_view> hosts;
  for (const auto& member : members) hosts.insert(member.host);
  return hosts.size() > 1 && hosts.size() < members.size();
}

}  // namespace hvd::runtime
