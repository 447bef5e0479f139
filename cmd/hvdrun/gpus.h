// How many GPUs this machine has for jobs. They are counted by their device files: the agent's
// machine may lack the driver's libraries, and a driver that is asked takes seconds to wake.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace hvd::cli {

// nvidia0, nvidia1, ... in /dev.
int count_gpus(const std::filesystem::path& devices = "/dev");

// Those of them that CUDA_VISIBLE_DEVICES leaves, if it is there: as CUDA reads it, nothing counts
// from the first word on that names no device.
int visible_gpus(int gpus, const std::optional<std::string>& visible);

// One worker for each GPU, and one where there is none.
int slots_of_this_machine();

}  // namespace hvd::cli
