// Who may work, as words and files say it: `-H a:4,b:4`, a hostfile. Pure parsing; every error
// names the place. Both keep the order given.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hvd::discovery {

struct Host {
  std::string name;
  int slots = 0;  // 0: not said
  friend bool operator==(const Host&, const Host&) = default;
};

// "a:4,b:4", "a,b:2", "[::1]:4". A host named twice is an error.
Result<std::vector<Host>> parse_host_list(std::string_view text);

// One host a line: "name slots=4" (Horovod), "name slots=4 max_slots=8" (Open MPI), "name:4",
// "name"; comments from '#', blank lines. Open MPI's meaning of a name given twice: the slots add
// up. `source` stands in errors: "hostfile:3: ...".
Result<std::vector<Host>> parse_hostfile(std::string_view text, std::string_view source);

}  // namespace hvd::discovery
