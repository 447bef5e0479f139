// Finds the addresses of a static job, once all agents are ready, as planned by
// driver/job/addresses.h: opens listeners of the rendezvous service at all candidate addresses,
// sends probes to the agents, waits for their answers for a bounded time, closes the listeners that
// are not needed, and reports the choice. A job on this machine alone gets the loopback address at
// once.
//
// Owned by the driver; every call and callback on its thread.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "base/protocol/agent_link.h"
#include "base/status.h"
#include "driver/core/timers.h"
#include "driver/job/addresses.h"
#include "rendezvous/server.h"

namespace hvd::driver {

// For one probe, and for an agent to report the results of all of its probes.
inline constexpr std::chrono::milliseconds kProbeTimeout{2'000};
inline constexpr std::chrono::milliseconds kAnswerTimeout{5'000};
// The prefix of errors of hvdrun's own listeners.
inline constexpr std::string_view kHere = "on this machine: ";

struct AddressPreferences {
  std::string advertise_address;                // of this machine; empty: any
  std::vector<std::string> network_interfaces;  // empty: any
};

class AddressSearch {
 public:
  using Send = std::function<void(HostIndex host, const agent_link::Probe& probe)>;
  // Called once, possibly from within begin(). It may not destroy the search.
  using End = std::function<void(const AddressChoice& choice)>;

  // `server` outlives this, and listens nowhere yet.
  AddressSearch(boost::asio::io_context& io, rendezvous::Server& server,
                std::vector<HostNetwork> hosts, AddressPreferences preferences, Send send, End end);
  AddressSearch(const AddressSearch&) = delete;
  AddressSearch& operator=(const AddressSearch&) = delete;

  void begin();
  // An error if the agent of this host was not sent such a probe.
  Status on_probed(HostIndex host, const agent_link::Probed& probed);

 private:
  using HostErrors = std::vector<std::pair<HostIndex, std::string>>;

  void choose_loopback();
  void find_candidates(HostErrors& errors);
  void open_listeners(HostErrors& errors);
  void end_if_complete();
  void end_with(AddressChoice choice);

  rendezvous::Server& server_;
  const AddressPreferences preferences_;
  AddressProblem problem_;
  std::vector<ProbeTask> tasks_;
  std::vector<ProbeAnswer> answers_;  // as tasks_
  std::vector<bool> answered_;
  Send send_;
  End end_;
  OwnTimer timeout_;
};

}  // namespace hvd::driver
