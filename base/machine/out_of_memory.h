// How often the kernel has killed a process of this one's control group for want of memory, as
// memory.events (version 2 of control groups) and memory.oom_control (version 1) count it, and the
// least memory limit of the groups on the way to the root. Any thread; asks the system each time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

namespace hvd {

struct MemoryEvents {
  std::uint64_t kills = 0;
  std::uint64_t limit = 0;  // bytes; 0: there is none
};

// `membership` as /proc/self/cgroup has it, `root` is where the hierarchies are mounted. Nothing if
// no file there says anything.
std::optional<MemoryEvents> memory_events(std::string_view membership,
                                          const std::filesystem::path& root);
// Of this process.
std::optional<MemoryEvents> own_memory_events();

}  // namespace hvd
