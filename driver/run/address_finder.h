// Finds the addresses by which the hosts of a job reach each other and the rendezvous service: of a
// static job all at once, when all agents are ready, and of an elastic one for each host that
// comes. The job hears of each failure as event::HostFailed.
//
// For the driver's thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "driver/agents/address_book.h"
#include "driver/agents/address_search.h"
#include "driver/run/host_table.h"
#include "driver/run/job_context.h"
#include "rendezvous/server.h"

namespace hvd::driver {

class AddressFinder {
 public:
  struct Callbacks {
    std::function<void(const Event& event)> handle;
    // The hosts of a static job have these addresses, by HostIndex.
    std::function<void(const std::vector<std::string>& addresses)> on_chosen;
  };

  // All references outlive this.
  AddressFinder(const JobContext& context, rendezvous::Server& server, const Job& job,
                HostTable& hosts, Callbacks callbacks);
  AddressFinder(const AddressFinder&) = delete;
  AddressFinder& operator=(const AddressFinder&) = delete;

  // For a static job, once.
  void choose();
  // For an elastic job, whenever a host's agent is ready.
  void find(HostIndex host);
  // As AddressBook has it; it ends like find().
  void find_again(HostIndex host, const std::string& address) {
    book_->find_again(host, hosts_.network_of(host), address);
  }

  // As AddressBook has them.
  void know(HostIndex host, const ArrivalChoice& choice);
  Status listen_again(const SocketAddress& where) { return book_->listen_again(where); }

  // An error if the agent of this host was not sent such a probe.
  Status on_probed(HostIndex host, const agent_link::Probed& probed);
  // A worker of this host could not reach the host of this name.
  void check(HostIndex host, const std::string& other);
  // The agent of this host of an elastic job is gone.
  void forget(HostIndex host) { book_->forget(host); }

 private:
  std::unique_ptr<AddressBook> make_book();
  AddressPreferences preferences() const;
  void fail(HostIndex host, const std::string& why);
  void on_choice(const AddressChoice& choice);

  const JobContext& context_;
  rendezvous::Server& server_;
  const Job& job_;
  HostTable& hosts_;
  const Callbacks callbacks_;
  std::unique_ptr<AddressSearch> search_;  // of a static job
  std::unique_ptr<AddressBook> book_;      // of an elastic one
};

}  // namespace hvd::driver
