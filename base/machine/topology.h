// The processors of this machine, and how the workers of a host divide them among themselves. The
// system is asked each time; any thread may call.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/status.h"

namespace hvd {

// The processors that a worker is bound to: nothing, cores, or all processors of NUMA nodes.
enum class Binding : std::uint8_t { none, cores, numa };
Status check(Binding binding);  // one that came from elsewhere

// The unit that the system schedules on: a hardware thread of a core.
struct Processor {
  int number = 0;
  int core = 0;  // the lowest number of a processor of its core
  int node = 0;  // of NUMA; 0 if the system has none
};

// The numbers of the processors that this process may run on; empty if the system does not tell.
std::vector<int> allowed_processors();
// The same processors, those of a node together, and in it those of a core.
// `devices` is where the system describes them.
std::vector<Processor> usable_processors(
    const std::filesystem::path& devices = "/sys/devices/system");

// The numbers of the processors of one of `parts` equal parts, 0 <= part < parts: of all cores, or
// of all nodes. If there are more parts than cores or nodes, some parts are the same. Sorted; empty
// for Binding::none, and without processors.
std::vector<int> part_of(const std::vector<Processor>& processors, Binding binding, int part,
                         int parts);

// "0-3,8", and the reverse, as the kernel writes lists of processors; what cannot be read is left
// out.
std::string processors_text(const std::vector<int>& numbers);
std::vector<int> read_processors(const std::string& text);

}  // namespace hvd
