// By which address one more host is reached by those that are there already, and by which it
// reaches this machine: driver/job/addresses.h for a job whose hosts come one after the other.
// Pure.
//
// Some of those that are there try all addresses of the new one; the one that most of them reach is
// taken, the earlier in the order of preference among equals. A host that cannot be tried because
// nobody is there is taken at its word. The new one tries where this machine listens. All workers
// of a job must have addresses of one family, which is that of the first.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/protocol/agent_link.h"
#include "base/socket.h"
#include "base/status.h"
#include "driver/job/addresses.h"

namespace hvd::driver {

struct Arrival {
  HostNetwork host;                      // another machine
  std::vector<std::string> candidates;   // of it, by preference
  std::vector<SocketAddress> endpoints;  // where the rendezvous service listens, by preference
  // Where the workers on this machine listen, one of the endpoints' addresses; empty: none are here
  // yet.
  std::string here;
};

// The addresses of `candidates` that are of the family of `in_use`, an address of the job; all of
// them if that is empty. The error says that there is none.
Result<std::vector<std::string>> of_one_family(std::vector<std::string> candidates,
                                               const std::string& in_use);

// The probes for a host that is there. Empty if the new host listens nowhere.
std::vector<agent_link::ProbeTarget> targets_of_others(const Arrival& arrival);
// The probes for the new host itself.
std::vector<agent_link::ProbeTarget> targets_of_itself(const Arrival& arrival);

// The result of a host that is there, or why it has none.
struct Try {
  std::string who;  // "host b", "this machine"
  ProbeAnswer answer;
  // Workers of the two hosts have lost each other before: this one has to reach the new one.
  bool has_to_reach = false;
};

// True if one try has reached the best address and all required tries have an answer, or if all
// tries have one. `own` is the answer of the new host itself.
bool is_enough(const std::optional<ProbeAnswer>& own, const std::vector<Try>& tries);

struct ArrivalChoice {
  std::string address;       // where the others reach its workers
  SocketAddress rendezvous;  // where it reaches the service
};
// The error says who cannot reach whom, and what can be done. Without tries it is taken at its
// word.
Result<ArrivalChoice> choose_arrival(const Arrival& arrival, const ProbeAnswer& own,
                                     const std::vector<Try>& tries);

}  // namespace hvd::driver
