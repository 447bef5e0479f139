// The GPUs of this machine. They are counted by their device files: a machine may lack the driver's
// libraries, and a driver that is asked takes seconds to wake. The system is asked each time; any
// thread may call.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace hvd {

// nvidia0, nvidia1, ... in /dev.
int count_gpus(const std::filesystem::path& devices = "/dev");

// The variable by which a person leaves a process only some of them.
inline constexpr const char* kVisibleDevices = "CUDA_VISIBLE_DEVICES";

// The number of GPUs that its value leaves, if it is there: as CUDA reads it, nothing counts from
// the first word on that names no device.
int visible_gpus(int gpus, const std::optional<std::string>& visible);

}  // namespace hvd
