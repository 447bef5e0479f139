#include "base/machine/cores.h"

#include <algorithm>
#include <string>

#include "base/machine/cgroup.h"
#include "base/machine/proc.h"
#include "base/machine/topology.h"
#include "base/text.h"

namespace hvd {
namespace {

constexpr int kMaxProcessors = 1 << 16;

// Two numbers of microseconds; "max" and -1 are no quota.
std::optional<int> whole_processors(std::string_view quota, std::string_view period) {
  const auto time = parse_number<long long>(trim(quota));
  const auto each = parse_number<long long>(trim(period));
  if (!time || !each || *time <= 0 || *each <= 0) return std::nullopt;
  return static_cast<int>(std::clamp(*time / *each, 1LL, static_cast<long long>(kMaxProcessors)));
}

std::optional<int> quota_of_version_2(const std::string& group) {
  const std::string both(trim(read_proc_file(group + "/cpu.max")));
  const auto blank = both.find(' ');
  if (blank == std::string::npos) return std::nullopt;
  return whole_processors(both.substr(0, blank), both.substr(blank + 1));
}

std::optional<int> quota_of_version_1(const std::string& group) {
  return whole_processors(read_proc_file(group + "/cpu.cfs_quota_us"),
                          read_proc_file(group + "/cpu.cfs_period_us"));
}

// Every group on the way to the root has its say.
template <typename Quota>
void look(const std::filesystem::path& root, const std::string& path, Quota quota,
          std::optional<int>& least) {
  for (const std::string& group : groups_to_root(root, path)) {
    if (const auto here = quota(group)) least = std::min(least.value_or(*here), *here);
  }
}

}  // namespace

std::optional<int> cores_by_quota(std::string_view membership, const std::filesystem::path& root) {
  std::optional<int> least;
  for (const auto& one : read_memberships(membership)) {
    if (one.controllers.empty()) {
      look(root, one.path, quota_of_version_2, least);
      continue;
    }
    if (!one.has("cpu")) continue;
    for (const std::string& folder : {std::string("cpu"), one.controllers}) {
      look(root / folder, one.path, quota_of_version_1, least);
      if (folder == one.controllers) break;
    }
  }
  return least;
}

int usable_cores() {
  const int allowed = std::max(1, static_cast<int>(allowed_processors().size()));
  const auto quota = cores_by_quota(read_proc_file("/proc/self/cgroup"), "/sys/fs/cgroup");
  return quota ? std::min(allowed, *quota) : allowed;
}

}  // namespace hvd
