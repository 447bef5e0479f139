#include "driver/job/addresses.h"

#include <algorithm>
#include <arpa/inet.h>
#include <map>
#include <optional>

#include "base/text.h"

namespace hvd::driver {
namespace {

bool is_link_local(const std::string& address) {
  in6_addr v6{};
  return address.starts_with("169.254.") ||
         (::inet_pton(AF_INET6, address.c_str(), &v6) == 1 && IN6_IS_ADDR_LINKLOCAL(&v6));
}

bool contains(const std::vector<std::string>& list, std::string_view item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

void add(std::vector<std::string>& list, const std::string& item) {
  if (!item.empty() && !contains(list, item)) list.push_back(item);
}

// The addresses that may be used at all. An interface that was asked for by name may be any.
Result<std::vector<std::string>> usable(const std::vector<Interface>& interfaces,
                                        const std::vector<std::string>& wanted) {
  std::vector<std::string> result;
  for (const auto& interface : interfaces) {
    const bool good =
        wanted.empty() ? !is_loopback_address(interface.address) : contains(wanted, interface.name);
    if (good && !is_link_local(interface.address)) add(result, interface.address);
  }
  if (result.empty() && !wanted.empty()) {
    return Status(Code::not_found,
                  cat("no usable address is on the network interfaces ", join(wanted, ", "),
                      " (--network-interface); there are ", interfaces_text(interfaces)));
  }
  return result;
}

// `first` in front, then what is of its family, then the rest.
std::vector<std::string> ordered(const std::vector<std::string>& first,
                                 const std::vector<std::string>& rest) {
  std::vector<std::string> result = first;
  const bool v6 = !first.empty() && is_v6(first.front());
  for (const bool same : {true, false}) {
    for (const auto& address : rest) {
      if (first.empty() || (is_v6(address) == v6) == same) add(result, address);
    }
  }
  return result;
}

Status no_address(const std::vector<Interface>& interfaces, std::string_view flag) {
  return {Code::not_found, cat("no address of it can be used, there are ",
                               interfaces_text(interfaces), "; ", flag, " says which to take")};
}

bool is_same_address(const std::string& one, const std::string& other) {
  in6_addr first{};
  in6_addr second{};
  return one == other || (::inet_pton(AF_INET6, one.c_str(), &first) == 1 &&
                          ::inet_pton(AF_INET6, other.c_str(), &second) == 1 &&
                          IN6_ARE_ADDR_EQUAL(&first, &second));
}

// Its workers listen there. The outer address of a host behind NAT could pass all tries, since the
// agent listens everywhere where it has no such address, and would fail in the workers.
Result<std::vector<std::string>> advertised_address(const HostNetwork& host) {
  const std::string& wanted = host.advertise_address;
  const bool is_own = std::any_of(
      host.interfaces.begin(), host.interfaces.end(),
      [&](const Interface& interface) { return is_same_address(interface.address, wanted); });
  if (is_own || is_loopback_address(wanted)) return std::vector<std::string>{wanted};
  return Status(
      Code::not_found,
      cat("address=", wanted, " in the list of hosts is not an address of it, and its ",
          "workers could not listen there; it has ", interfaces_text(host.interfaces),
          ". The outer address of a host behind NAT does not help: a VPN gives it one of ",
          "its own"));
}

// The hosts in a ring, this machine once.
std::vector<HostIndex> ring_of(const std::vector<HostNetwork>& hosts) {
  std::vector<HostIndex> ring;
  bool seen_local = false;
  for (HostIndex host = 0; host < hosts.size(); ++host) {
    if (!hosts[host].local || !std::exchange(seen_local, true)) ring.push_back(host);
  }
  return ring;
}

// "10.0.0.1: Connection refused"
std::string with_address(const std::string& address, const std::string& error) {
  return error.find(address) == std::string::npos ? cat(address, ": ", error) : error;
}

std::string all_errors(const std::vector<agent_link::ProbeTarget>& targets,
                       const std::vector<std::string>& errors, std::size_t from,
                       std::size_t count) {
  std::vector<std::string> parts;
  for (std::size_t index = from; index < from + count; ++index) {
    parts.push_back(with_address(targets[index].address, errors[index]));
  }
  return join(parts, "; ");
}

// Addresses of those of the first `count` targets that were reached.
std::vector<std::string> reached_addresses(const std::vector<agent_link::ProbeTarget>& targets,
                                           const std::vector<std::string>& errors,
                                           std::size_t count) {
  std::vector<std::string> result;
  for (std::size_t index = 0; index < count; ++index) {
    if (errors[index].empty()) result.push_back(targets[index].address);
  }
  return result;
}

const std::string* first_of_family(const std::vector<std::string>& addresses, bool v6) {
  const auto found = std::find_if(addresses.begin(), addresses.end(),
                                  [v6](const auto& address) { return is_v6(address) == v6; });
  return found == addresses.end() ? nullptr : &*found;
}

// Which endpoints of the rendezvous were reached, by each host that tried.
using Reached = std::vector<std::vector<bool>>;

std::ptrdiff_t times_reached(const Reached& reached, std::size_t endpoint) {
  return std::count_if(reached.begin(), reached.end(),
                       [endpoint](const auto& host) { return host[endpoint]; });
}

// The endpoint that all reach, else the one that most do, the earlier among equals; of the family,
// if one is asked for and all reach one of it.
std::size_t most_reached(const std::vector<SocketAddress>& endpoints, const Reached& reached,
                         std::optional<bool> v6) {
  std::vector<std::ptrdiff_t> marks;
  for (const auto& endpoint : endpoints) {
    const auto count = times_reached(reached, marks.size());
    const bool by_all = count == static_cast<std::ptrdiff_t>(reached.size());
    const bool fits = by_all && v6 && is_v6(endpoint.host) == *v6;
    marks.push_back(fits ? count + 1 : count);
  }
  return static_cast<std::size_t>(std::max_element(marks.begin(), marks.end()) - marks.begin());
}

// Workers listen at one address each, so all of them must have one of the same family: is it IPv6?
// Nothing if there is no such family. `usable` are addresses by host, none for those that are this
// machine, whose workers have the address of an endpoint.
std::optional<bool> common_family(const AddressProblem& problem,
                                  const std::vector<std::vector<std::string>>& usable,
                                  const Reached& reached) {
  const auto has = [&](bool v6) {
    for (HostIndex host = 0; host < usable.size(); ++host) {
      if (!problem.hosts[host].local && first_of_family(usable[host], v6) == nullptr) return false;
      if (!problem.hosts[host].local) continue;
      const std::size_t endpoint = most_reached(problem.rendezvous, reached, v6);
      if (is_v6(problem.rendezvous[endpoint].host) != v6 ||
          times_reached(reached, endpoint) != static_cast<std::ptrdiff_t>(reached.size())) {
        return false;
      }
    }
    return true;
  };
  // The family that the first host prefers comes first.
  const auto first = std::find_if(usable.begin(), usable.end(),
                                  [](const auto& addresses) { return !addresses.empty(); });
  if (first == usable.end()) return std::nullopt;
  const bool preferred = is_v6(first->front());
  if (has(preferred)) return preferred;
  if (has(!preferred)) return !preferred;
  return std::nullopt;
}

// Takes the answers one after the other, and then chooses.
class AddressChooser {
 public:
  explicit AddressChooser(const AddressProblem& problem)
      : problem_(problem), usable_(problem.candidates) {
    choice_.addresses.resize(problem.hosts.size());
    choice_.rendezvous.resize(problem.hosts.size());
  }

  void take(const ProbeTask& task, const ProbeAnswer& answer) {
    if (!answer.failure.empty()) return refuse(task.prober, answer.failure);
    const bool is_local = problem_.hosts[task.prober].local;
    const std::size_t own = task.targets.size() - (is_local ? 0 : endpoints());
    if (own != 0) take_subject(task, answer, own);
    if (!is_local) take_endpoints(task, answer, own);
  }

  AddressChoice choose() && {
    if (endpoints() == 0) {
      choose_addresses(std::nullopt);
      return std::move(choice_);
    }
    const auto v6 = common_family(problem_, usable_, reached_);
    choose_addresses(v6);
    choose_rendezvous(v6);
    return std::move(choice_);
  }

 private:
  std::size_t endpoints() const { return problem_.rendezvous.size(); }
  void refuse(HostIndex host, std::string why) {
    choice_.errors.emplace_back(host, std::move(why));
  }

  // The first `own` targets are addresses of the subject.
  void take_subject(const ProbeTask& task, const ProbeAnswer& answer, std::size_t own) {
    usable_[task.subject] = reached_addresses(task.targets, answer.errors, own);
    if (!usable_[task.subject].empty()) return;
    const HostNetwork& prober = problem_.hosts[task.prober];
    refuse(task.subject,
           cat("no address of it can be reached from ",
               prober.local ? std::string("this machine") : cat("host ", prober.name), ": ",
               all_errors(task.targets, answer.errors, 0, own), kChooseAnother));
  }

  // The targets after those are endpoints of the rendezvous.
  void take_endpoints(const ProbeTask& task, const ProbeAnswer& answer, std::size_t own) {
    std::vector<bool> reaches(endpoints());
    for (std::size_t endpoint = 0; endpoint < endpoints(); ++endpoint) {
      reaches[endpoint] = answer.errors[own + endpoint].empty();
    }
    if (std::find(reaches.begin(), reaches.end(), true) == reaches.end()) {
      return refuse(task.prober,
                    cat("this machine cannot be reached from it: ",
                        all_errors(task.targets, answer.errors, own, endpoints()),
                        "; --network-interface or --advertise-address choose another address"));
    }
    reached_.push_back(std::move(reaches));
    reached_by_.push_back(task.prober);
  }

  void choose_addresses(std::optional<bool> v6) {
    for (HostIndex host = 0; host < problem_.hosts.size(); ++host) {
      if (problem_.hosts[host].local || usable_[host].empty()) continue;
      const auto* const address = v6 ? first_of_family(usable_[host], *v6) : nullptr;
      choice_.addresses[host] = address != nullptr ? *address : usable_[host].front();
    }
  }

  void choose_rendezvous(std::optional<bool> v6) {
    const bool workers_here = std::any_of(problem_.hosts.begin(), problem_.hosts.end(),
                                          [](const HostNetwork& host) { return host.local; });
    const auto best = most_reached(problem_.rendezvous, reached_, workers_here ? v6 : std::nullopt);
    for (std::size_t index = 0; index < reached_.size(); ++index) {
      const HostIndex host = reached_by_[index];
      const auto endpoint = reached_[index][best] ? best : first_reached(reached_[index]);
      choice_.rendezvous[host] = problem_.rendezvous[endpoint];
      if (endpoint == best || !workers_here) continue;
      refuse(host, cat("the workers on this machine, at ", problem_.rendezvous[best].host,
                       ", cannot be reached from it, which reaches this machine only at ",
                       problem_.rendezvous[endpoint].host,
                       "; --advertise-address chooses one address for all"));
    }
    for (HostIndex host = 0; host < problem_.hosts.size(); ++host) {
      if (!problem_.hosts[host].local) continue;
      choice_.addresses[host] = problem_.rendezvous[best].host;
      choice_.rendezvous[host] = problem_.rendezvous[best];
    }
  }
  static std::size_t first_reached(const std::vector<bool>& reaches) {
    return static_cast<std::size_t>(std::find(reaches.begin(), reaches.end(), true) -
                                    reaches.begin());
  }

  const AddressProblem& problem_;
  // By host. A host that no other host tries is taken at its word.
  std::vector<std::vector<std::string>> usable_;
  // Which endpoints each host reaches, and which host that is.
  Reached reached_;
  std::vector<HostIndex> reached_by_;
  AddressChoice choice_;
};

}  // namespace

std::string interfaces_text(const std::vector<Interface>& interfaces) {
  std::vector<std::string> names;
  std::map<std::string, std::vector<std::string>> addresses;
  for (const auto& interface : interfaces) {
    add(names, interface.name);
    addresses[interface.name].push_back(interface.address);
  }
  std::vector<std::string> parts;
  parts.reserve(names.size());
  for (const auto& name : names) parts.push_back(cat(name, " (", join(addresses[name], ", "), ")"));
  return parts.empty() ? "none" : join(parts, ", ");
}

Status check_interfaces(const std::vector<Interface>& interfaces,
                        const std::vector<std::string>& wanted) {
  return wanted.empty() ? Status() : usable(interfaces, wanted).status();
}

bool is_v6(std::string_view address) { return address.find(':') != std::string_view::npos; }

bool is_loopback_address(std::string_view address) {
  return address == "::1" || address.starts_with("127.");
}

std::string interface_with(const std::vector<Interface>& interfaces, std::string_view address) {
  for (const auto& interface : interfaces) {
    if (interface.address == address) return interface.name;
  }
  return is_loopback_address(address) ? "lo" : "";
}

Result<std::vector<std::string>> candidates_of(const HostNetwork& host,
                                               const std::vector<std::string>& wanted) {
  if (!host.advertise_address.empty()) return advertised_address(host);
  auto own = usable(host.interfaces, wanted);
  if (!own) return own;
  std::vector<std::string> first;
  // Where it was reached, unless that belongs to something in between.
  const bool has_peer = std::any_of(
      host.interfaces.begin(), host.interfaces.end(),
      [&](const Interface& interface) { return interface.address == host.peer_address; });
  if (has_peer && (wanted.empty() || contains(*own, host.peer_address))) {
    first.push_back(host.peer_address);
  }
  auto result = ordered(first, *own);
  if (result.empty()) return no_address(host.interfaces, "address= in the list of hosts");
  return result;
}

Result<std::vector<std::string>> candidates_of_this_machine(
    const std::vector<Interface>& interfaces, const std::string& advertise,
    const std::vector<HostNetwork>& hosts, const std::vector<std::string>& wanted) {
  if (!advertise.empty()) return std::vector<std::string>{advertise};
  auto own = usable(interfaces, wanted);
  if (!own) return own;
  // Loopback is of use only if all others are on this machine, too.
  const bool all_here = std::all_of(hosts.begin(), hosts.end(), [](const HostNetwork& host) {
    return host.local || is_loopback_address(host.local_address);
  });
  std::vector<std::string> first;
  for (const auto& host : hosts) {
    const bool is_own = std::any_of(
        interfaces.begin(), interfaces.end(),
        [&](const Interface& interface) { return interface.address == host.local_address; });
    const bool good = wanted.empty() ? all_here || !is_loopback_address(host.local_address)
                                     : contains(*own, host.local_address);
    if (!host.local && is_own && good) add(first, host.local_address);
  }
  auto result = ordered(first, *own);
  if (result.empty()) return no_address(interfaces, "--advertise-address");
  return result;
}

std::vector<ProbeTask> plan_probes(const AddressProblem& problem) {
  const auto ring = ring_of(problem.hosts);
  std::vector<ProbeTask> tasks;
  for (std::size_t place = 0; place < ring.size(); ++place) {
    ProbeTask task;
    task.prober = task.subject = ring[place];
    const HostIndex before = ring[(place + ring.size() - 1) % ring.size()];
    const HostNetwork& other = problem.hosts[before];
    if (before != task.prober && !other.local && other.probe_port != 0) {
      task.subject = before;
      for (const auto& address : problem.candidates[before]) {
        task.targets.push_back({address, other.probe_port, other.probe_greeting});
      }
    }
    if (!problem.hosts[task.prober].local) {
      for (const auto& where : problem.rendezvous) {
        task.targets.push_back({where.host, where.port, ""});
      }
    }
    if (!task.targets.empty()) tasks.push_back(std::move(task));
  }
  return tasks;
}

AddressChoice choose_addresses(const AddressProblem& problem, const std::vector<ProbeTask>& tasks,
                               const std::vector<ProbeAnswer>& answers) {
  AddressChooser chooser(problem);
  for (std::size_t index = 0; index < tasks.size(); ++index) {
    chooser.take(tasks[index], answers[index]);
  }
  return std::move(chooser).choose();
}

}  // namespace hvd::driver
