// The addresses of an elastic job's hosts, found as they come: carries out what
// driver/job/arrival.h plans for each of them, and opens the listeners of the rendezvous service.
//
// A job whose hosts are all this machine, and can be no others, uses the loopback address.
// Otherwise workers on this machine listen at the address by which other hosts reach it, or, as
// long as there is none, at its first one.
//
// Owned by the driver; every call and callback on its thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/protocol/agent_link.h"
#include "base/status.h"
#include "driver/agents/address_search.h"
#include "driver/job/arrival.h"
#include "rendezvous/server.h"

namespace hvd::driver {

class AddressBook {
 public:
  struct Callbacks {
    std::function<void(HostIndex host, const agent_link::Probe& probe)> send;
    // One of these two for each find(), unless forget() came first; also from within find().
    std::function<void(HostIndex host, const ArrivalChoice& choice)> on_found;
    std::function<void(HostIndex host, const std::string& why)> on_error;
  };

  // `server` outlives this, and listens nowhere yet. `only_here`: no host is another machine.
  AddressBook(boost::asio::io_context& io, rendezvous::Server& server,
              AddressPreferences preferences, bool only_here, Callbacks callbacks);
  AddressBook(const AddressBook&) = delete;
  AddressBook& operator=(const AddressBook&) = delete;

  void find(HostIndex host, HostNetwork network);
  // Its agent answers no more; and is not asked to try others.
  void forget(HostIndex host);
  // An error if nobody has asked the agent of this host for that.
  Status on_probed(HostIndex host, const agent_link::Probed& probed);

 private:
  // One new host that is being tried.
  struct Search {
    Arrival arrival;
    std::optional<ProbeAnswer> own;
    std::vector<HostIndex> probers;
    std::vector<Try> tries;  // as probers
    std::unique_ptr<boost::asio::steady_timer> timeout;
  };
  struct PendingProbe {
    HostIndex of = 0;  // whose agent was asked
    HostIndex about = 0;
    std::size_t targets = 0;
  };
  struct Known {
    std::string name;
    std::string address;
    bool local = false;
  };

  void find_local(HostIndex host, const HostNetwork& network);
  Result<SocketAddress> local_listener();
  // The listeners through which this host might come, opened as far as they were not.
  Result<std::vector<SocketAddress>> listeners_for(const HostNetwork& network);
  void ask(HostIndex of, HostIndex about, std::vector<agent_link::ProbeTarget> targets);
  void end_if_enough(HostIndex host);
  void end(HostIndex host);
  std::string address_in_use() const;

  boost::asio::io_context& io_;
  rendezvous::Server& server_;
  const AddressPreferences preferences_;
  const bool only_here_;
  const Callbacks callbacks_;
  std::map<std::string, SocketAddress> listeners_;  // open, by address
  std::string here_;  // where workers on this machine listen; empty: there were none yet
  std::string reached_by_others_;  // a listener's address
  std::map<HostIndex, Known> known_;
  std::map<HostIndex, Search> searches_;
  std::map<std::uint32_t, PendingProbe> pending_probes_;
  std::uint32_t last_probe_id_ = 0;
};

}  // namespace hvd::driver
