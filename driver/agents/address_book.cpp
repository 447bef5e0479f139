#include "driver/agents/address_book.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/machine/machine.h"
#include "base/text.h"

namespace hvd::driver {
namespace {

constexpr std::size_t kMaxProbers = 3;  // for one new host; one of them on this machine

}  // namespace

AddressBook::AddressBook(boost::asio::io_context& io, rendezvous::Server& server,
                         AddressPreferences preferences, bool only_here, Callbacks callbacks,
                         ReachChecks::Limits limits_of_checks)
    : io_(io),
      server_(server),
      preferences_(std::move(preferences)),
      only_here_(only_here),
      callbacks_(std::move(callbacks)),
      checks_(io, limits_of_checks,
              [this](HostIndex host, const ReachChecks::Way& way, const std::string& error) {
                let_rest(host, way, error);
              }) {}

void AddressBook::find(HostIndex host, HostNetwork network) {
  if (network.local) {
    find_local(host, network);
    return;
  }
  Search search;
  auto candidates = candidates_of(network, preferences_.network_interfaces);
  if (candidates) candidates = of_one_family(*std::move(candidates), address_in_use());
  if (!candidates) return callbacks_.on_error(host, candidates.status().message());
  auto listeners = listeners_for(network);
  if (!listeners) return callbacks_.on_error(host, cat(kHere, listeners.status().message()));
  search.arrival = {std::move(network), *std::move(candidates), *std::move(listeners), here_};

  choose_probers(search);
  if (targets_of_others(search.arrival).empty()) {
    search.probers.clear();
    search.tries.clear();
  }
  begin(host, std::move(search));
}

void AddressBook::find_again(HostIndex host, HostNetwork network, const std::string& address) {
  if (network.local && here_.empty()) here_ = address;
  if (network.local) return find_local(host, network);
  auto listeners = listeners_for(network);
  if (!listeners) return callbacks_.on_error(host, cat(kHere, listeners.status().message()));
  Search search;
  search.arrival = {std::move(network), {address}, *std::move(listeners), here_};
  begin(host, std::move(search));
}

void AddressBook::begin(HostIndex host, Search search) {
  const auto of_others = targets_of_others(search.arrival);
  const auto of_itself = targets_of_itself(search.arrival);
  search.timeout = std::make_unique<OwnTimer>(io_);
  search.timeout->begin(kAnswerTimeout, [this, host] { end(host); });
  const std::vector<HostIndex> probers = search.probers;
  searches_.insert_or_assign(host, std::move(search));
  send_probe({.targets = of_itself}, {host, host});
  for (const HostIndex prober : probers) send_probe({.targets = of_others}, {prober, host});
}

// The newest hosts come first: they are the least likely to be gone already.
void AddressBook::choose_probers(Search& search) const {
  const auto lost = lost_each_other_.find(search.arrival.host.name);
  std::size_t elsewhere = 0;
  bool any_here = false;
  for (auto known = known_.rbegin(); known != known_.rend(); ++known) {
    const auto& [name, address, local, port] = known->second;
    const bool has_to_reach = lost != lost_each_other_.end() && lost->second == name;
    const bool is_one_too_many = local ? std::exchange(any_here, true) : ++elsewhere >= kMaxProbers;
    if (is_one_too_many && !has_to_reach) continue;
    search.probers.push_back(known->first);
    search.tries.push_back({local ? "this machine" : cat("host ", name), {}, has_to_reach});
  }
}

std::uint32_t AddressBook::send_probe(agent_link::Probe probe, const PendingProbe& pending) {
  probe.id = ++last_probe_id_;
  probe.timeout_ms = static_cast<std::uint32_t>(kProbeTimeout.count());
  PendingProbe& noted = pending_probes_[probe.id] = pending;
  noted.targets = probe.targets.size();
  callbacks_.send(pending.prober, probe);
  return probe.id;
}

void AddressBook::check(HostIndex host, const std::string& other) {
  const auto about = std::find_if(known_.begin(), known_.end(), [&](const auto& known) {
    return known.second.name == other && known.first != host;
  });
  if (about == known_.end() || about->second.port == 0 || !known_.contains(host)) return;
  const ReachChecks::Way way{host, about->first};
  if (checks_.is_under_way(way)) return;
  // The agent there listens no more, since its workers run: its host refuses, if it is reached.
  const Known& known = about->second;
  const std::uint32_t attempt =
      send_probe({.targets = {{known.address, known.port, ""}}, .refusal_counts = true},
                 {.prober = way.from, .about = way.to, .checks = true});
  const std::uint32_t ping = send_probe({}, {.prober = way.to, .about = way.from, .checks = true});
  checks_.begin(way, {attempt, ping});
}

void AddressBook::let_rest(HostIndex host, const ReachChecks::Way& way, const std::string& error) {
  const auto known = known_.find(host);
  const auto other = known_.find(way.from == host ? way.to : way.from);
  // The error of another host that rests may have led to forget().
  if (known == known_.end() || other == known_.end()) return;
  const std::string name = other->second.name;
  lost_each_other_[known->second.name] = name;
  known_.erase(known);
  callbacks_.on_error(
      host, way.from == host ? cat("host ", name, " cannot be reached from it any more: ", error)
                             : cat("it cannot be reached from host ", name, " any more: ", error));
}

void AddressBook::find_local(HostIndex host, const HostNetwork& network) {
  const auto listener = local_listener();
  if (!listener) return callbacks_.on_error(host, cat(kHere, listener.status().message()));
  here_ = listener->host;
  known_[host] = {network.name, here_, true, listener->port};
  callbacks_.on_found(host, {here_, *listener});
}

Result<SocketAddress> AddressBook::local_listener() {
  std::vector<std::string> wanted;
  if (!here_.empty()) {
    wanted = {here_};
  } else if (!preferences_.advertise_address.empty()) {
    wanted = {preferences_.advertise_address};
  } else if (!only_here_) {
    if (!reached_by_others_.empty()) wanted = {reached_by_others_};
    const auto own =
        candidates_of_this_machine(machine_interfaces(), "", {}, preferences_.network_interfaces);
    if (!own && !preferences_.network_interfaces.empty()) return own.status();
    if (own) wanted.insert(wanted.end(), own->begin(), own->end());
  }
  // A job of this machine alone, or a machine without a network, or without IPv4.
  if (here_.empty() && preferences_.advertise_address.empty() &&
      (only_here_ || preferences_.network_interfaces.empty())) {
    wanted.insert(wanted.end(), {"127.0.0.1", "::1"});
  }

  Status last;
  for (const auto& address : wanted) {
    if (const auto open = listeners_.find(address); open != listeners_.end()) return open->second;
    auto listener = server_.listen({address, 0});
    if (listener) {
      listeners_[address] = *listener;
      return listener;
    }
    if (last.ok()) last = listener.status();
  }
  return last;
}

Result<std::vector<SocketAddress>> AddressBook::listeners_for(const HostNetwork& network) {
  auto candidates = candidates_of_this_machine(machine_interfaces(), preferences_.advertise_address,
                                               {network}, preferences_.network_interfaces);
  if (!candidates) return candidates.status();
  if (!here_.empty() &&
      std::find(candidates->begin(), candidates->end(), here_) == candidates->end() &&
      !is_loopback_address(here_)) {
    candidates->push_back(here_);
  }

  std::vector<SocketAddress> listeners;
  std::vector<std::string> failures;
  for (const auto& address : *candidates) {
    if (const auto open = listeners_.find(address); open != listeners_.end()) {
      listeners.push_back(open->second);
      continue;
    }
    if (auto listener = server_.listen({address, 0})) {
      listeners_[address] = *listener;
      listeners.push_back(*listener);
    } else {
      failures.push_back(listener.status().message());
    }
  }
  if (listeners.empty()) {
    return Status(Code::unavailable,
                  cat(join(failures, "; "),
                      preferences_.advertise_address.empty() ? "" : " (--advertise-address)"));
  }
  return listeners;
}

Status AddressBook::on_probed(HostIndex host, const agent_link::Probed& probed) {
  const auto pending = pending_probes_.find(probed.id);
  if (pending == pending_probes_.end() || pending->second.prober != host ||
      pending->second.targets != probed.errors.size()) {
    return {Code::data_loss, "it answered a probe that it was not sent"};
  }

  const HostIndex about = pending->second.about;
  const bool checks = pending->second.checks;
  pending_probes_.erase(pending);
  if (checks) {
    checks_.on_answer(probed.id, probed.errors.empty() ? "" : probed.errors.front());
    return {};
  }
  const auto search = searches_.find(about);
  if (search == searches_.end()) return {};  // it was settled without this answer
  if (host == about) {
    search->second.own = ProbeAnswer{probed.errors, ""};
  } else {
    for (std::size_t i = 0; i < search->second.probers.size(); ++i) {
      if (search->second.probers[i] == host) search->second.tries[i].answer.errors = probed.errors;
    }
  }
  end_if_enough(about);
  return {};
}

void AddressBook::end_if_enough(HostIndex host) {
  const auto search = searches_.find(host);
  if (search == searches_.end()) return;
  if (is_enough(search->second.own, search->second.tries)) end(host);
}

void AddressBook::end(HostIndex host) {
  auto node = searches_.extract(host);
  if (node.empty()) return;
  const Search& search = node.mapped();

  // Another host that was added at the same time may have settled on the other address family.
  auto candidates = of_one_family(search.arrival.candidates, address_in_use());
  if (!candidates) return callbacks_.on_error(host, candidates.status().message());
  const ProbeAnswer silent{{},
                           cat("its agent did not report within ", seconds_text(kAnswerTimeout),
                               " which addresses of this machine can be reached from it")};
  auto choice = choose_arrival(search.arrival, search.own.value_or(silent), search.tries);
  if (!choice) return callbacks_.on_error(host, choice.status().message());
  lost_each_other_.erase(search.arrival.host.name);
  if (reached_by_others_.empty()) reached_by_others_ = choice->rendezvous.host;
  known_[host] = {search.arrival.host.name, choice->address, false, search.arrival.host.probe_port};
  callbacks_.on_found(host, *choice);
}

void AddressBook::know(HostIndex host, const HostNetwork& network, const ArrivalChoice& choice) {
  if (network.local) here_ = choice.address;
  if (!network.local && reached_by_others_.empty()) reached_by_others_ = choice.rendezvous.host;
  const std::uint16_t port = network.local ? choice.rendezvous.port : network.probe_port;
  known_[host] = {network.name, choice.address, network.local, port};
}

Status AddressBook::listen_again(const SocketAddress& where) {
  auto listener = server_.listen(where);
  HVD_RETURN_IF_ERROR(listener.status());
  listeners_[where.host] = *listener;
  return {};
}

void AddressBook::forget(HostIndex host) {
  known_.erase(host);
  searches_.erase(host);
  std::erase_if(pending_probes_,
                [&](const auto& pending) { return pending.second.prober == host; });

  // Searches for other hosts do not wait for the answer of this one.
  std::vector<HostIndex> about;
  for (auto& [other, search] : searches_) {
    for (std::size_t i = 0; i < search.probers.size(); ++i) {
      if (search.probers[i] != host || !search.tries[i].answer.errors.empty()) continue;
      search.tries[i].answer.failure = "its agent is gone";
      about.push_back(other);
    }
  }
  for (const HostIndex other : about) end_if_enough(other);
  checks_.forget(host);
}

// An address in use, which determines the address family of the job; empty: there is none yet.
std::string AddressBook::address_in_use() const {
  if (!here_.empty() && !is_loopback_address(here_)) return here_;
  for (const auto& [host, known] : known_) {
    if (!known.local) return known.address;
  }
  return {};
}

}  // namespace hvd::driver
