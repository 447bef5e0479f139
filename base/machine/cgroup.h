// Control groups of both versions: in which ones a process is, as /proc/PID/cgroup has it, and
// where the system shows them. Pure, and safe from any thread.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace hvd {

// One line: a group of the hierarchy of version 2, or of one of version 1.
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

}  // namespace hvd
