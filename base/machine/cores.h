// The processors that this process may use. The system is asked each time; any thread may call.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

namespace hvd {

// The number of processors that this process may run on (as nproc counts them), but no more than
// the processor time of its control groups is worth: a container with a quota of two processors has
// two. At least 1.
int usable_cores();

// Whole processors that the tightest quota on the way from a process's control group to `root`,
// where these are mounted, leaves it, at least 1; nothing without a quota. `membership` is the
// process's /proc/<pid>/cgroup. Both versions of control groups are understood.
std::optional<int> cores_by_quota(std::string_view membership, const std::filesystem::path& root);

}  // namespace hvd
