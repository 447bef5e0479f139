// A host as a job was told of it: its room, and how it is reached. A value.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace hvd::driver {

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

}  // namespace hvd::driver
