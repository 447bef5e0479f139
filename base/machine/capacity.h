// The resources of a machine for workers, processors and GPUs, and how many workers it has room for
// if nobody says so. The system is asked each time; any thread may call.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace hvd {

inline constexpr int kMaxSlots = 65'536;  // of one host; more is a slip of the finger, or a lie

struct Capacity {
  int gpus = 0;   // that may be used
  int cores = 1;  // likewise
  friend bool operator==(const Capacity&, const Capacity&) = default;
};

// One for each GPU; without any, one for each core.
int slots_by(const Capacity& capacity);
// "4 slots, one for each GPU"
std::string slots_text(const Capacity& capacity);

// As this process sees it, with what CUDA_VISIBLE_DEVICES leaves it.
Capacity capacity_of_this_machine();

// The number of processors that this process may run on (as nproc counts them), but no more than
// the processor time of its control groups is worth: a container with a quota of two processors has
// two. At least 1.
int usable_cores();

// Whole processors that the tightest quota on the way from a process's control group to `root`,
// where these are mounted, leaves it, at least 1; nothing without a quota. `membership` is the
// process's /proc/<pid>/cgroup. Both versions of control groups are understood.
std::optional<int> cores_by_quota(std::string_view membership, const std::filesystem::path& root);

// The GPUs of this machine, by their device files, nvidia0, nvidia1, ...: a machine may lack the
// driver's libraries, and a driver that is asked takes seconds to wake.
int count_gpus(const std::filesystem::path& devices = "/dev");

// The variable by which a person leaves a process only some of them.
inline constexpr const char* kVisibleDevices = "CUDA_VISIBLE_DEVICES";

// The number of GPUs that its value leaves, if it is there: as CUDA reads it, nothing counts from
// the first word on that names no device.
int visible_gpus(int gpus, const std::optional<std::string>& visible);

}  // namespace hvd
