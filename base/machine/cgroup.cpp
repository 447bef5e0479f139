#include "base/machine/cgroup.h"

#include <algorithm>

#include "base/text.h"

namespace hvd {

bool GroupMembership::has(std::string_view controller) const {
  const auto names = split(controllers, ',');
  return std::find(names.begin(), names.end(), controller) != names.end();
}

std::vector<GroupMembership> read_memberships(std::string_view text) {
  std::vector<GroupMembership> memberships;
  for (const auto& line : split(text, '\n')) {
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    memberships.push_back({line.substr(first + 1, second - first - 1), line.substr(second + 1)});
  }
  return memberships;
}

std::vector<std::string> groups_to_root(const std::filesystem::path& root, std::string path) {
  if (path.find("..") != std::string::npos) path.clear();
  std::vector<std::string> groups;
  for (;;) {
    while (path.ends_with('/')) path.pop_back();
    groups.push_back(root.string() + path);
    if (path.empty()) return groups;
    const auto slash = path.rfind('/');
    path.erase(slash == std::string::npos ? 0 : slash);
  }
}

}  // namespace hvd
