// Hosts that may work, as arguments and files name them: `-H a:4,b:4`, a hostfile. Pure parsing;
// every error names the place. Both keep the order given.
//
// A host is a name of letters, digits, '.', '-' and '_', an IPv4 address, or an IPv6 address in
// brackets, a link-local one with its interface: "[fe80::1%eth0]". Before it may stand a user,
// "me@a". Further settings follow as key=value:
//
//     port=2222         SSH's, on that host
//     user=me           as me@a
//     address=10.0.0.7  an IP address by which the other hosts reach it; IPv6 may be in brackets
//     slots=4           as a:4
//     max_slots=8       if the slots are not said: how many there are at most
//
// in a list after colons ("a:4:port=2222"), in a file after blanks.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hvd::discovery {

struct Host {
  // Unique: the host as it was written, without user and brackets, "a"; with a port "a:2222",
  // "[::1]:2222".
  std::string name;
  int slots = 0;      // 0: not said
  int max_slots = 0;  // likewise; no less than `slots`
  // Only as far as they were said.
  std::string destination = {};  // the host of "a:2222", without brackets; empty: it is the name
  std::string user = {};
  int port = 0;
  std::string address = {};
  friend bool operator==(const Host&, const Host&) = default;
};

// "a:4,b:4", "a,b:2", "[::1]:4", "me@a:4", with a port of SSH "a:4:port=2222". A host named twice
// is an error; the same one with two ports is two hosts, since behind a gateway it may be.
Result<std::vector<Host>> parse_host_list(std::string_view text);

// One host a line: "name slots=4" (Horovod), "name slots=4 max_slots=8" (Open MPI), "name:4",
// "name"; comments from '#', blank lines. Open MPI's meaning of a name given twice: the slots add
// up, a line without a number being one, and then so it is on every line, since the file lists
// slots; what else is said of a host may not differ. `source` stands in errors: "hostfile:3: ...".
Result<std::vector<Host>> parse_hostfile(std::string_view text, std::string_view source);

// ---- the output of a discovery script: the hosts that may work now ----
//
// A host a line, as in a hostfile: "name", "name:4", "[::1]:4", "name slots=4
// port=2222"; comments from '#', blank lines, lines that end with CR LF. The order printed is the
// order of the hosts. An answer that names nobody is an answer: nobody may work now.

// A slip of the script, not a cluster: a job has at most as many workers.
inline constexpr std::size_t kMaxDiscoveredHosts = 100'000;

// A host without a number gets `slots_per_host`, which is 0 if nobody says how many it has. The
// same host twice with the same words is that host; with other words the answer contradicts itself
// and is refused, whole.
Result<std::vector<Host>> parse_answer(std::string_view text, int slots_per_host);

}  // namespace hvd::discovery
