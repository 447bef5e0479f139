// The output of a discovery script: the hosts that may work now. Pure parsing; every error names
// the line.
//
// A host a line, as in a hostfile (discovery/hosts.h): "name", "name:4", "[::1]:4", "name slots=4
// port=2222"; comments from '#', blank lines, lines that end with CR LF. The order printed is the
// order of the hosts. An answer that names nobody is an answer: nobody may work now.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "discovery/hosts.h"

namespace hvd::discovery {

// A slip of the script, not a cluster: a job has at most as many workers.
inline constexpr std::size_t kMaxDiscoveredHosts = 100'000;

// A host without a number gets `slots_per_host`, which is 0 if nobody says how many it has. The
// same host twice with the same words is that host; with other words the answer contradicts itself
// and is refused, whole.
Result<std::vector<Host>> parse_answer(std::string_view text, int slots_per_host);

}  // namespace hvd::discovery
