// Which rank works on which slot of which host: the hosts as a job was told of them, and a plan for
// them. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "base/machine/capacity.h"
#include "base/port_range.h"
#include "base/protocol/world_document.h"
#include "base/status.h"

namespace hvd::driver {

// A host as a job was told of it: its room, and how it is reached.
struct HostSlots {
  std::string name;   // by which the job knows it; unique
  int slots = 1;      // 0: nobody said; as many as its agent finds room for, which is at least one
  int max_slots = 0;  // but no more than these; 0: no limit
  // How it is reached, where that is not its name: "me@10.0.0.7", port 2222. With a user or a port
  // it is reached by SSH even if it is this machine.
  std::string destination = {};
  std::string user = {};
  int port = 0;
  std::string advertise_address = {};  // where the others reach its workers, if that is known

  friend bool operator==(const HostSlots&, const HostSlots&) = default;
};

// The slots of a host whose agent has found so many.
inline int slots_found(const HostSlots& host, int found) {
  return host.max_slots > 0 ? std::min(found, host.max_slots) : found;
}

inline bool slots_are_known(const std::vector<HostSlots>& hosts) {
  return std::all_of(hosts.begin(), hosts.end(),
                     [](const HostSlots& host) { return host.slots > 0; });
}

struct Plan {
  std::vector<WorldMember> members;  // incarnation 0 and no address yet
  // Set if more workers than slots were asked for: the one line that says so.
  std::string oversubscription;
};

// The request for a plan, before all slots are known.
struct PlanRequest {
  std::vector<HostSlots> hosts;  // in order
  int processes = 0;             // 0: one for each slot
  bool oversubscribe = true;
};

// "host a: 4 slots, one for each GPU", of one whose slots nobody said.
std::string slots_text(const HostSlots& host, const Capacity& capacity);

// The hosts, the first ones, that may get a worker whatever the others turn out to have: all,
// unless the first have slots enough. Other hosts need not be asked.
std::vector<HostSlots> hosts_to_ask(const std::vector<HostSlots>& hosts, int processes);

// Host-major in the order given: host 0 gets the first ranks, and so on. With `processes` 0 every
// slot is taken. With more processes than slots they are spread evenly over the hosts, in
// proportion to their slots, or, without `oversubscribe`, refused with Horovod's text. Hosts that
// get no worker, which are always the last, do not appear. All slots are known.
Result<Plan> plan_static(const std::vector<HostSlots>& hosts, int processes, bool oversubscribe);

// Whether there is room for the least of workers: in the slots, or because more workers than slots
// were planned.
Status check_least(int least, const std::vector<HostSlots>& hosts, const Plan& plan);

// Whether the range has a port for each listener on a host with so many workers; ports that other
// programs have are not known here. `of_hvdrun` are those that hvdrun itself takes there.
Status check_ports(const PortRange& range, const std::string& host, int workers, int of_hvdrun);

// How many keys each scope of Horovod's own clients gets (its global, local_<host> and
// cross_<local rank>).
std::map<std::string, std::size_t> legacy_scope_sizes(const std::vector<WorldMember>& members);

}  // namespace hvd::driver
