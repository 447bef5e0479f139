#include "driver/run/address_finder.h"

#include <algorithm>
#include <utility>

namespace hvd::driver {

AddressFinder::AddressFinder(const JobContext& context, rendezvous::Server& server, const Job& job,
                             HostTable& hosts, Callbacks callbacks)
    : context_(context),
      server_(server),
      job_(job),
      hosts_(hosts),
      callbacks_(std::move(callbacks)) {
  if (context_.spec.elastic) book_ = make_book();
}

std::unique_ptr<AddressBook> AddressFinder::make_book() {
  AddressBook::Callbacks callbacks;
  callbacks.send = [this](HostIndex host, const agent_link::Probe& probe) {
    hosts_.send(host, probe);
  };
  callbacks.on_found = [this](HostIndex host, const ArrivalChoice& choice) {
    hosts_.at(host).rendezvous = choice.rendezvous;
    callbacks_.handle(event::AddressFound{host, choice.address, choice.rendezvous.to_string()});
  };
  callbacks.on_error = [this](HostIndex host, const std::string& why) { fail(host, why); };

  const JobSpec& spec = context_.spec;
  const bool only_here =
      spec.elastic->discovery_script.empty() && !spec.join && hosts_.are_all_here();
  return std::make_unique<AddressBook>(context_.io, server_, preferences(), only_here,
                                       std::move(callbacks));
}

AddressPreferences AddressFinder::preferences() const {
  return {context_.spec.advertise_address, context_.spec.network_interfaces};
}

void AddressFinder::fail(HostIndex host, const std::string& why) {
  callbacks_.handle(event::HostFailed{host, {Step::reach, why, 1}});
}

void AddressFinder::choose() {
  std::vector<HostNetwork> networks;
  bool has_ports = true;
  // Hosts without workers come last in the job's order, so the indices stay the same.
  for (HostIndex host = 0; host < hosts_.size(); ++host) {
    const int workers = static_cast<int>(job_.hosts()[host].workers.size());
    if (workers == 0) continue;
    networks.push_back(hosts_.network_of(host));
    if (const Status enough = hosts_.check_ports(host, workers); !enough.ok()) {
      has_ports = false;
      fail(host, enough.message());
    }
  }
  if (!has_ports) return;

  search_ = std::make_unique<AddressSearch>(
      context_.io, server_, std::move(networks), preferences(),
      [this](HostIndex host, const agent_link::Probe& probe) { hosts_.send(host, probe); },
      [this](const AddressChoice& choice) { on_choice(choice); });
  search_->begin();
}

void AddressFinder::on_choice(const AddressChoice& choice) {
  for (const auto& [host, message] : choice.errors) fail(host, message);
  if (!choice.errors.empty()) {
    callbacks_.handle(event::AddressesChosen{});  // all failures were reported
    return;
  }
  for (HostIndex host = 0; host < choice.rendezvous.size(); ++host) {
    hosts_.at(host).rendezvous = choice.rendezvous[host];
  }
  callbacks_.on_chosen(choice.addresses);
}

void AddressFinder::find(HostIndex host) {
  const int slots = std::max(hosts_.at(host).found.host.slots, 1);
  if (const Status enough = hosts_.check_ports(host, slots); !enough.ok()) {
    return fail(host, enough.message());
  }
  book_->find(host, hosts_.network_of(host));
}

void AddressFinder::know(HostIndex host, const ArrivalChoice& choice) {
  hosts_.at(host).rendezvous = choice.rendezvous;
  book_->know(host, hosts_.network_of(host), choice);
}

Status AddressFinder::on_probed(HostIndex host, const agent_link::Probed& probed) {
  if (search_) return search_->on_probed(host, probed);
  if (book_) return book_->on_probed(host, probed);
  return {Code::data_loss, "it answered a probe that it was not sent"};
}

void AddressFinder::check(HostIndex host, const std::string& other) {
  if (book_) book_->check(host, other);
}

}  // namespace hvd::driver
