#include "base/machine/cgroup.h"

#include <algorithm>
#include <optional>
#include <string>
#include <system_error>

#include "base/machine/proc.h"
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

namespace {

// Version 1 says "no limit" by the largest number of whole pages that it knows.
constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 60;

struct Files {
  const char* events;
  const char* limit;
  bool are_local;  // they do not count what happens in the groups below
};
constexpr Files kVersion1{"/memory.oom_control", "/memory.limit_in_bytes", true};
constexpr Files kVersion2{"/memory.events.local", "/memory.max", true};
constexpr Files kOldVersion2{"/memory.events", "/memory.max", false};  // of kernels before 5.2

// The number in the line "oom_kill N".
std::optional<std::uint64_t> kills_in(const std::string& text) {
  constexpr std::string_view kName = "oom_kill ";
  for (const std::string& line : split(text, '\n')) {
    if (line.starts_with(kName)) {
      return parse_number<std::uint64_t>(trim(std::string_view(line).substr(kName.size())));
    }
  }
  return std::nullopt;
}

std::uint64_t limit_in(const std::string& group, const char* file) {
  const auto limit = parse_number<std::uint64_t>(trim(read_proc_file(group + file)));
  return std::min(limit.value_or(kNoLimit), kNoLimit);
}

std::uint64_t least_limit_in(const std::vector<std::string>& groups, const char* file) {
  std::uint64_t least = kNoLimit;
  for (const std::string& group : groups) least = std::min(least, limit_in(group, file));
  return least;
}

// Those of `found` below its only group. A limit holds for all below.
void look_below(std::map<std::string, MemoryEvents>& found, const Files& files) {
  namespace fs = std::filesystem;
  std::error_code error;
  const std::string top = found.begin()->first;
  for (fs::recursive_directory_iterator next(top, error), end; !error && next != end;
       next.increment(error)) {
    if (!next->is_directory(error)) continue;
    const std::string group = next->path().string();
    const auto kills = kills_in(read_proc_file(group + files.events));
    const auto above = found.find(next->path().parent_path().string());
    if (!kills || above == found.end()) continue;
    found[group] = {*kills, std::min(above->second.limit, limit_in(group, files.limit))};
  }
}

// A kill is counted where the process was, a limit holds for all below.
std::map<std::string, MemoryEvents> look(const std::filesystem::path& root, const std::string& path,
                                         const Files& files) {
  std::map<std::string, MemoryEvents> found;
  const auto groups = groups_to_root(root, path);
  for (const std::string& group : groups) {
    const auto kills = kills_in(read_proc_file(group + files.events));
    if (found.empty() && kills) found[group].kills = *kills;
  }
  if (found.empty()) return found;
  found.begin()->second.limit = least_limit_in(groups, files.limit);
  if (files.are_local && found.begin()->first != groups.back()) look_below(found, files);
  for (auto& [group, events] : found) {
    if (events.limit == kNoLimit) events.limit = 0;
  }
  return found;
}

}  // namespace

std::uint64_t memory_and_swap_within(std::uint64_t memory, std::uint64_t swap,
                                     std::string_view membership,
                                     const std::filesystem::path& root) {
  std::uint64_t both = memory + swap;
  for (const auto& one : read_memberships(membership)) {
    if (!one.has("memory") && !one.controllers.empty()) continue;
    const auto groups = groups_to_root(root / one.controllers, one.path);
    if (one.controllers.empty()) {
      swap = std::min(swap, least_limit_in(groups, "/memory.swap.max"));
      memory = std::min(memory, least_limit_in(groups, kVersion2.limit));
    } else {
      both = std::min(both, least_limit_in(groups, "/memory.memsw.limit_in_bytes"));
      memory = std::min(memory, least_limit_in(groups, kVersion1.limit));
    }
  }
  return std::min(both, memory + swap);
}

std::map<std::string, MemoryEvents> memory_events(std::string_view membership,
                                                  const std::filesystem::path& root) {
  // Memory is accounted in one hierarchy: that of version 2, unless version 1 has a group for it.
  std::map<std::string, MemoryEvents> found;
  for (const auto& one : read_memberships(membership)) {
    if (one.has("memory")) return look(root / one.controllers, one.path, kVersion1);
    if (!one.controllers.empty()) continue;
    found = look(root, one.path, kVersion2);
    if (found.empty()) found = look(root, one.path, kOldVersion2);
  }
  return found;
}

std::map<std::string, MemoryEvents> memory_events(std::string_view membership) {
  return memory_events(membership, kControlGroups);
}

std::map<std::string, MemoryEvents> own_memory_events() {
  return memory_events(read_proc_file("/proc/self/cgroup"));
}

}  // namespace hvd
