// By which address each host is reached, and by which this machine with its rendezvous service:
// chosen by what is reachable, not by the names of interfaces. Pure: what to try is computed from
// what the agents said of their hosts, the choice from what came of the tries.
//
// The hosts of a job form a ring, this machine being one of them if any worker runs here; each host
// tries the addresses of the one before it, since that is what a ring of workers needs first. Every
// other machine tries the rendezvous. The first address in the order of preference that was reached
// is taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/protocol/agent_link.h"
#include "base/socket.h"
#include "base/status.h"
#include "driver/job/job_io.h"

namespace hvd::driver {

bool is_loopback_address(std::string_view address);
bool is_v6(std::string_view address);  // and not IPv4

// One host of a job, as its agent and the way to it tell.
struct HostNetwork {
  std::string name;
  bool local = false;             // it is this machine; only name and advertise_address count then
  std::string advertise_address;  // the person's word; empty: none
  std::vector<Interface> interfaces;
  std::string peer_address;   // where it was reached; may be empty
  std::string local_address;  // what it sees this machine as; may be empty
  std::uint16_t probe_port = 0;
  std::string probe_greeting;
};

// The end of an error about a host that others do not reach at any of its addresses.
inline constexpr std::string_view kChooseAnother =
    "; --network-interface, or address= in the list of hosts, choose another of its own (behind "
    "NAT it has none that others reach, unless a VPN gives it one)";

// Candidates in the order of preference. `wanted` are names of interfaces, empty: any. An error
// says what the host has instead.
Result<std::vector<std::string>> candidates_of(const HostNetwork& host,
                                               const std::vector<std::string>& wanted);
// The candidates of this machine, which must be its own addresses. `advertise` is the person's
// word.
Result<std::vector<std::string>> candidates_of_this_machine(
    const std::vector<Interface>& interfaces, const std::string& advertise,
    const std::vector<HostNetwork>& hosts, const std::vector<std::string>& wanted);

// An error if this machine has no usable address on the interfaces `wanted`, as above.
Status check_interfaces(const std::vector<Interface>& interfaces,
                        const std::vector<std::string>& wanted);
// "lo (127.0.0.1), eth0 (10.0.0.1, fd00::1)"
std::string interfaces_text(const std::vector<Interface>& interfaces);

struct AddressProblem {
  std::vector<HostNetwork> hosts;                    // by HostIndex
  std::vector<std::vector<std::string>> candidates;  // of each host; of a local one none
  std::vector<SocketAddress> rendezvous;             // where it listens, by preference
};

// The addresses that one host's agent is to try.
struct ProbeTask {
  HostIndex prober = 0;
  HostIndex subject = 0;                         // whose addresses come first; prober itself: none
  std::vector<agent_link::ProbeTarget> targets;  // those, and then those of the rendezvous
};
std::vector<ProbeTask> plan_probes(const AddressProblem& problem);

// One for each task: for each target its error, empty if it was reached; or no entries and why
// the whole task came to nothing.
struct ProbeAnswer {
  std::vector<std::string> errors;
  std::string failure;
};

struct AddressChoice {
  std::vector<std::string> addresses;     // by host: where the others reach its workers
  std::vector<SocketAddress> rendezvous;  // by host: where it reaches the rendezvous
  // Hosts that are out of reach; then the rest means nothing.
  std::vector<std::pair<HostIndex, std::string>> errors;
};
AddressChoice choose_addresses(const AddressProblem& problem, const std::vector<ProbeTask>& tasks,
                               const std::vector<ProbeAnswer>& answers);

// The interface that has this address, or nothing.
std::string interface_with(const std::vector<Interface>& interfaces, std::string_view address);

}  // namespace hvd::driver
