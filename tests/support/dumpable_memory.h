// Where bytes lie in the memory of a process, and whether a core dump of it would hold them.
#pragma once

#include <fcntl.h>
#include <sstream>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <unistd.h>
#include <vector>

#include "base/descriptors.h"
#include "base/text.h"

namespace hvd::test {

struct Mapping {
  unsigned long begin = 0;  // addresses
  unsigned long end = 0;
  std::string text;   // the line of /proc/PID/smaps with its name
  std::string flags;  // VmFlags, each with a blank on both sides

  bool has(std::string_view flag) const {
    return flags.find(cat(" ", flag, " ")) != std::string::npos;
  }
};

inline std::string whole_proc_file(pid_t pid, const char* name) {
  const UniqueFd file(::open(cat("/proc/", pid, "/", name).c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  std::string part(65'536, '\0');
  for (ssize_t got = 0; (got = ::read(file.get(), part.data(), part.size())) > 0;) {
    text.append(part, 0, static_cast<std::size_t>(got));
  }
  return text;
}

inline std::vector<Mapping> mappings_of(pid_t pid) {
  std::vector<Mapping> all;
  std::istringstream lines(whole_proc_file(pid, "smaps"));
  for (std::string line; std::getline(lines, line);) {
    Mapping mapping;
    if (std::sscanf(line.c_str(), "%lx-%lx", &mapping.begin, &mapping.end) == 2) {
      mapping.text = line;
      all.push_back(mapping);
    } else if (line.starts_with("VmFlags:") && !all.empty()) {
      all.back().flags = line.substr(sizeof("VmFlags:") - 1) + " ";
    }
  }
  return all;
}

struct FoundBytes {
  std::vector<std::string> dumped;  // the mappings that hold them and that a core dump has
  int kept_out = 0;                 // mappings that hold them and that none has
};

inline FoundBytes find_in_memory(pid_t pid, std::string_view bytes) {
  FoundBytes found;
  const UniqueFd memory(::open(cat("/proc/", pid, "/mem").c_str(), O_RDONLY | O_CLOEXEC));
  for (const Mapping& mapping : mappings_of(pid)) {
    if (mapping.text.find("[v") != std::string::npos) continue;  // the kernel's own
    std::string content(std::size_t{1} << 20, '\0');
    std::string tail;
    bool is_there = false;
    for (auto at = mapping.begin; at < mapping.end && !is_there;) {
      const auto most = std::min<unsigned long>(content.size(), mapping.end - at);
      const ssize_t got = ::pread(memory.get(), content.data(), most, static_cast<off_t>(at));
      if (got <= 0) break;  // it may not be read, or nobody has written there
      // Bytes that lie across the end of a piece, too.
      tail.append(content, 0, static_cast<std::size_t>(got));
      is_there = tail.find(bytes) != std::string::npos;
      tail.erase(0, tail.size() - std::min(tail.size(), bytes.size()));
      at += static_cast<unsigned long>(got);
    }
    if (!is_there) continue;
    if (mapping.has("dd")) {
      ++found.kept_out;
    } else {
      found.dumped.push_back(mapping.text);
    }
  }
  return found;
}

}  // namespace hvd::test
