// Control groups of both versions: in which ones a process is, as /proc/PID/cgroup has it, where
// the system shows them, and how often memory ran out in them. Safe from any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace hvd {

// One line of that file: a group of the hierarchy of version 2, or of one of version 1.
struct GroupMembership {
  std::string controllers;  // "cpu,cpuacct"; empty for version 2
  std::string path;
  bool has(std::string_view controller) const;
};
std::vector<GroupMembership> read_memberships(std::string_view text);

// The directories of the group and of all above it, up to `root`, where the hierarchy is mounted.
// Inside a container the path may be that of the machine outside: then the files are not there, and
// the root is the container's own.
std::vector<std::string> groups_to_root(const std::filesystem::path& root, std::string path);

// Where the system shows them.
inline constexpr const char* kControlGroups = "/sys/fs/cgroup";

// Bytes of memory and swap together that a process of these groups may use on a machine with so
// much of both: each group on the way to the root may limit either, or, in version 1, their sum.
std::uint64_t memory_and_swap_within(std::uint64_t memory, std::uint64_t swap,
                                     std::string_view membership,
                                     const std::filesystem::path& root);

// How often the kernel has killed a process for want of memory in this one's control group and in
// those below it, as memory.events.local, memory.events (version 2 of control groups) and
// memory.oom_control (version 1) count it, and the least memory limit of the groups on the way to
// the root. The system is asked each time.
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
