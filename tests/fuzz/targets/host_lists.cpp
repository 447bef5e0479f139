// Lists of hosts: -H, a hostfile, a discovery script's answer, and single words of them. The first
// byte says which.
#include <set>

#include "discovery/host_words.h"
#include "discovery/hosts.h"
#include "discovery/slurm.h"
#include "rendezvous/access.h"
#include "tests/fuzz/input.h"

namespace {

using namespace hvd;
using discovery::Host;
using fuzz::must;

// host_lines() writes no more of it than its name and slots, and no brackets.
bool is_plain(const Host& host) {
  return host == Host{.name = host.name, .slots = host.slots} && host.slots > 0 &&
         host.name.find(':') == std::string::npos;
}

void check_hosts(const std::vector<Host>& hosts) {
  std::set<std::string> names;
  std::vector<Host> plain;
  for (const auto& host : hosts) {
    must(names.insert(host.name).second, "each host is named once");
    must(host.slots >= 0 && (host.max_slots == 0 || host.max_slots >= host.slots),
         "numbers of slots are possible");
    must(host.port >= 0 && host.port <= 65'535, "a port is one");
    if (is_plain(host)) plain.push_back(host);
  }

  const auto again = discovery::parse_answer(discovery::host_lines(plain), 0);
  must(again.ok() && *again == plain, "hosts that are written as lines are read as the same hosts");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const int which = input.byte() % 4;
  const auto text = input.rest();
  if (which == 3) {
    const auto address = rendezvous::parse_bind_address(text);
    if (!address.ok()) fuzz::must_explain(address.status());
    return 0;
  }

  const auto hosts = which == 0   ? discovery::parse_host_list(text)
                     : which == 1 ? discovery::parse_hostfile(text, "hosts")
                                  : discovery::parse_answer(text, 2);
  if (hosts.ok()) {
    check_hosts(*hosts);
  } else {
    fuzz::must_explain(hosts.status());
  }
  return 0;
}
