// Who may work, as words and files say it: `-H a:4,b:4`, a hostfile. Pure parsing; every error
// names the place. Both keep the order given.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hvd::discovery {

struct Host {
  std::string name;  // unique: the host as it was written, "a", and with a port "a:2222"
  int slots = 0;     // 0: not said
  // Only as far as they were said.
  std::string destination = {};  // the host of "me@a", without brackets; empty: it is the name
  std::string user = {};
  int port = 0;
  std::string address = {};
  friend bool operator==(const Host&, const Host&) = default;
};

// "a:4,b:4", "a,b:2", "[::1]:4", "me@a:4", with a port of SSH "a:4:port=2222". A host named twice
// is an error; the same one with two ports is two hosts.
Result<std::vector<Host>> parse_host_list(std::string_view text);

// One host a line: "name slots=4" (Horovod), "name slots=4 max_slots=8" (Open MPI), "name:4",
// "name"; each also with "port=2222", "user=me" (or me@name) and "address=10.0.0.7" (where the
// other hosts reach it); comments from '#', blank lines. Open MPI's meaning of a name given twice:
// the slots add up. `source` stands in errors: "hostfile:3: ...".
Result<std::vector<Host>> parse_hostfile(std::string_view text, std::string_view source);

}  // namespace hvd::discovery
