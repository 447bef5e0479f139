// The short forms in which Slurm writes names and numbers of nodes. Pure parsing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hvd::discovery {

// Names of nodes as Slurm writes them: "sn[1-3,7],gpu[01-04]-ib" is sn1, sn2, sn3, sn7, gpu01-ib
// and so on, in this order. Several brackets in one name multiply. At most kMaxDiscoveredHosts.
Result<std::vector<std::string>> expand_hostlist(std::string_view text);

// Numbers, one for each node: "2(x3),1" is 2, 2, 2, 1.
Result<std::vector<int>> expand_counts(std::string_view text);

}  // namespace hvd::discovery
