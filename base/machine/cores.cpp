#include "base/machine/cores.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <sched.h>
#include <string>

#include "base/machine/proc.h"
#include "base/text.h"

namespace hvd {
namespace {

constexpr int kMaxProcessors = 1 << 16;

int allowed_processors() {
  // The kernel refuses a set that is smaller than its own.
  for (int size = 1024; size <= kMaxProcessors; size *= 2) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(
        CPU_ALLOC(static_cast<std::size_t>(size)), [](cpu_set_t* own) { CPU_FREE(own); });
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(size));
    if (!set) break;
    if (::sched_getaffinity(0, bytes, set.get()) == 0) return CPU_COUNT_S(bytes, set.get());
    if (errno != EINVAL) break;
  }
  return 1;
}

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

// Every group on the way has its say. Inside a container the path may be that of the machine
// outside: what is not there says nothing, and the root is the container's own.
template <typename Quota>
void look(const std::string& root, std::string path, Quota quota, std::optional<int>& least) {
  if (path.find("..") != std::string::npos) path.clear();
  for (;;) {
    while (path.ends_with('/')) path.pop_back();
    if (const auto here = quota(root + path)) least = std::min(least.value_or(*here), *here);
    if (path.empty()) return;
    const auto slash = path.rfind('/');
    path.erase(slash == std::string::npos ? 0 : slash);
  }
}

}  // namespace

std::optional<int> cores_by_quota(std::string_view membership, const std::filesystem::path& root) {
  std::optional<int> least;
  for (const auto& line : split(membership, '\n')) {
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      look(root.string(), path, quota_of_version_2, least);
      continue;
    }
    const auto names = split(controllers, ',');
    if (std::find(names.begin(), names.end(), "cpu") == names.end()) continue;
    for (const std::string& folder : {std::string("cpu"), controllers}) {
      look((root / folder).string(), path, quota_of_version_1, least);
      if (folder == controllers) break;
    }
  }
  return least;
}

int usable_cores() {
  const int allowed = std::max(1, allowed_processors());
  const auto quota = cores_by_quota(read_proc_file("/proc/self/cgroup"), "/sys/fs/cgroup");
  return quota ? std::min(allowed, *quota) : allowed;
}

}  // namespace hvd
