#include "base/machine/capacity.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "base/machine/cgroup.h"
#include "base/machine/proc.h"
#include "base/machine/topology.h"
#include "base/text.h"

namespace hvd {

int slots_by(const Capacity& capacity) {
  return std::clamp(capacity.gpus > 0 ? capacity.gpus : capacity.cores, 1, kMaxSlots);
}

std::string slots_text(const Capacity& capacity) {
  const int slots = slots_by(capacity);
  const char* const of = capacity.gpus > 0 ? "GPU" : "core";
  if (slots == 1) return cat("1 slot, for its ", of);
  return cat(slots, " slots, one for each ", of);
}

Capacity capacity_of_this_machine() {
  const char* const visible = std::getenv(kVisibleDevices);
  const auto words = visible != nullptr ? std::optional<std::string>(visible) : std::nullopt;
  return {visible_gpus(count_gpus(), words), usable_cores()};
}

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

int count_gpus(const std::filesystem::path& devices) {
  int gpus = 0;
  std::error_code error;
  // Other names that begin so, nvidiactl or nvidia-uvm, are not those of devices.
  for (std::filesystem::directory_iterator entry(devices, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const bool is_nvidia = name.starts_with("nvidia") && name.size() > 6;
    if (is_nvidia && name.find_first_not_of("0123456789", 6) == std::string::npos) ++gpus;
  }
  return gpus;
}

int visible_gpus(int gpus, const std::optional<std::string>& visible) {
  if (!visible || gpus == 0) return gpus;
  int left = 0;
  std::string_view rest = *visible;
  while (!rest.empty()) {
    const auto comma = std::min(rest.find(','), rest.size());
    const auto word = rest.substr(0, comma);
    // Others are UUIDs, also of parts of a GPU, of which there may be more than GPUs.
    if (const auto index = parse_number<int>(word)) {
      if (*index < 0 || *index >= gpus) break;
    } else if (!word.starts_with("GPU-") && !word.starts_with("MIG-")) {
      break;
    }
    ++left;
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return left;
}

}  // namespace hvd
