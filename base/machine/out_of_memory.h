// How often the kernel has killed a process for want of memory in this one's control group and in
// those below it, as memory.events.local, memory.events (version 2 of control groups) and
// memory.oom_control (version 1) count it, and the least memory limit of the groups on the way to
// the root. Any thread; asks the system each time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

namespace hvd {

struct MemoryEvents {
  std::uint64_t kills = 0;  // of processes in this very group, as far as the kernel tells
  std::uint64_t limit = 0;  // bytes; 0: there is none
};

// `membership` as /proc/self/cgroup has it, `root` is where the hierarchies are mounted. By the
// directory of each group; none if no file there says anything. Nothing below the root counts: it
// may be all of the machine.
std::map<std::string, MemoryEvents> memory_events(std::string_view membership,
                                                  const std::filesystem::path& root);
// On this system.
std::map<std::string, MemoryEvents> memory_events(std::string_view membership);
// The events of this process's memory.
std::map<std::string, MemoryEvents> own_memory_events();

}  // namespace hvd
