#include "base/machine/out_of_memory.h"

#include <algorithm>
#include <string>

#include "base/machine/cgroup.h"
#include "base/machine/proc.h"
#include "base/text.h"

namespace hvd {
namespace {

// Version 1 says "no limit" by the largest number of whole pages that it knows.
constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 60;

struct Files {
  const char* events;
  const char* limit;
};
constexpr Files kVersion1{"/memory.oom_control", "/memory.limit_in_bytes"};
constexpr Files kVersion2{"/memory.events", "/memory.max"};

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

// A kill is counted where the process was, a limit holds for all below.
std::optional<MemoryEvents> look(const std::filesystem::path& root, const std::string& path,
                                 const Files& files) {
  std::optional<std::uint64_t> kills;
  std::uint64_t limit = kNoLimit;
  for (const std::string& group : groups_to_root(root, path)) {
    if (!kills) kills = kills_in(read_proc_file(group + files.events));
    const auto here = parse_number<std::uint64_t>(trim(read_proc_file(group + files.limit)));
    limit = std::min(limit, here.value_or(kNoLimit));
  }
  if (!kills) return std::nullopt;
  return MemoryEvents{*kills, limit == kNoLimit ? 0 : limit};
}

}  // namespace

std::optional<MemoryEvents> memory_events(std::string_view membership,
                                          const std::filesystem::path& root) {
  // Memory is accounted in one hierarchy: that of version 2, unless version 1 has a group for it.
  std::optional<MemoryEvents> found;
  for (const auto& one : read_memberships(membership)) {
    if (one.has("memory")) return look(root / one.controllers, one.path, kVersion1);
    if (one.controllers.empty()) found = look(root, one.path, kVersion2);
  }
  return found;
}

std::optional<MemoryEvents> own_memory_events() {
  return memory_events(read_proc_file("/proc/self/cgroup"), "/sys/fs/cgroup");
}

}  // namespace hvd
