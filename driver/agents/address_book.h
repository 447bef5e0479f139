// Finds the addresses of an elastic job's hosts as they are added, as planned for each of them by
// driver/job/arrival.h, and opens the listeners of the rendezvous service.
//
// A job that can only use this machine uses the loopback address. Otherwise workers on this machine
// listen at the address by which other hosts reach it, or, as long as there is none, at its first
// one.
//
// Owned by the driver; every call and callback on its thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "base/protocol/agent_link.h"
#include "base/status.h"
#include "driver/agents/address_search.h"
#include "driver/agents/reach_checks.h"
#include "driver/core/timers.h"
#include "driver/job/arrival.h"
#include "rendezvous/server.h"

namespace hvd::driver {

class AddressBook {
 public:
  struct Callbacks {
    std::function<void(HostIndex host, const agent_link::Probe& probe)> send;
    // One of these two is called for each find(), possibly from within it, unless forget() was
    // called before. on_error may be called again after a check().
    std::function<void(HostIndex host, const ArrivalChoice& choice)> on_found;
    std::function<void(HostIndex host, const std::string& why)> on_error;
  };

  // `server` outlives this, and has no listener yet. `only_here`: no host can be another machine.
  AddressBook(boost::asio::io_context& io, rendezvous::Server& server,
              AddressPreferences preferences, bool only_here, Callbacks callbacks,
              ReachChecks::Limits limits_of_checks = {});
  AddressBook(const AddressBook&) = delete;
  AddressBook& operator=(const AddressBook&) = delete;

  void find(HostIndex host, HostNetwork network);
  // The same for a host whose workers listen at this address already, for an earlier driver of the
  // job: it finds where the host reaches the rendezvous service now.
  void find_again(HostIndex host, HostNetwork network, const std::string& address);
  // An earlier driver of the job has found these for the host, and its agent is here again.
  void know(HostIndex host, const HostNetwork& network, const ArrivalChoice& choice);
  // Listens where an earlier driver did.
  Status listen_again(const SocketAddress& where);
  // A worker of this host could not reach the host of this name. If its agent cannot either, though
  // both agents answer, on_error is called for one of the two (driver/agents/reach_checks.h).
  void check(HostIndex host, const std::string& other);
  // The agent of this host is gone: it answers no probes, and gets none for other hosts.
  void forget(HostIndex host);
  // An error if the agent of this host was not sent such a probe.
  Status on_probed(HostIndex host, const agent_link::Probed& probed);

 private:
  // The search for the addresses of one new host.
  struct Search {
    Arrival arrival;
    std::optional<ProbeAnswer> own;  // of its own agent
    std::vector<HostIndex> probers;  // hosts whose agents try to reach it
    std::vector<Try> tries;          // of the probers, in their order
    std::unique_ptr<OwnTimer> timeout;
  };
  struct PendingProbe {
    HostIndex prober = 0;  // whose agent got the probe
    HostIndex about = 0;
    std::size_t targets = 0;
    bool checks = false;  // it is of check()
  };
  struct Known {
    std::string name;
    std::string address;
    bool local = false;
    std::uint16_t port = 0;  // where something has listened that others could reach; 0: unknown
  };

  void begin(HostIndex host, Search search);
  void find_local(HostIndex host, const HostNetwork& network);
  Result<SocketAddress> local_listener();
  // The listeners that this host may be able to reach; opens those that are not open yet.
  Result<std::vector<SocketAddress>> listeners_for(const HostNetwork& network);
  void choose_probers(Search& search) const;
  // Returns the number of the probe.
  std::uint32_t send_probe(agent_link::Probe probe, const PendingProbe& pending);
  void let_rest(HostIndex host, const ReachChecks::Way& way, const std::string& error);
  void end_if_enough(HostIndex host);
  void end(HostIndex host);
  std::string address_in_use() const;

  boost::asio::io_context& io_;
  rendezvous::Server& server_;
  const AddressPreferences preferences_;
  const bool only_here_;
  const Callbacks callbacks_;
  std::map<std::string, SocketAddress> listeners_;  // open, by address
  // The address of workers on this machine; empty: there were none yet.
  std::string here_;
  std::string reached_by_others_;  // the address of a listener; empty: there is none yet
  std::map<HostIndex, Known> known_;
  // Hosts that were given up because they did not reach another one, and that one, by name.
  std::map<std::string, std::string> lost_each_other_;
  std::map<HostIndex, Search> searches_;
  std::map<std::uint32_t, PendingProbe> pending_probes_;
  std::uint32_t last_probe_id_ = 0;
  ReachChecks checks_;
};

}  // namespace hvd::driver
