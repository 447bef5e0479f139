#include "driver/agents/address_book.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "base/machine/machine.h"
#include "base/text.h"

namespace hvd::driver {
namespace {

constexpr std::size_t kMostTriers = 3;  // one of them on this machine

}  // namespace

AddressBook::AddressBook(boost::asio::io_context& io, rendezvous::Server& server,
                         AddressWishes wishes, bool only_here, Callbacks callbacks)
    : io_(io),
      server_(server),
      wishes_(std::move(wishes)),
      only_here_(only_here),
      callbacks_(std::move(callbacks)) {}

void AddressBook::find(HostIndex host, HostNetwork network) {
  if (network.local) {
    find_here(host, network);
    return;
  }
  Search search;
  auto candidates = candidates_of(network, wishes_.network_interfaces);
  if (candidates) candidates = of_one_family(*std::move(candidates), address_in_use());
  if (!candidates) return callbacks_.on_trouble(host, candidates.status().message());
  auto doors = doors_for(network);
  if (!doors) return callbacks_.on_trouble(host, cat(kHere, doors.status().message()));
  search.arrival = {std::move(network), *std::move(candidates), *std::move(doors), here_};
  search.patience = std::make_unique<boost::asio::steady_timer>(io_, kAnswerTimeout);
  // The newest first: what came last is the likeliest to be there still.
  std::size_t elsewhere = 0;
  bool any_here = false;
  for (auto known = known_.rbegin(); known != known_.rend(); ++known) {
    if (known->second.local ? std::exchange(any_here, true) : ++elsewhere >= kMostTriers) continue;
    search.triers.push_back(known->first);
    search.tries.push_back(
        {known->second.local ? "this machine" : cat("host ", known->second.name), {}});
  }
  const auto of_others = targets_of_others(search.arrival);
  if (of_others.empty()) {
    search.triers.clear();
    search.tries.clear();
  }
  const auto of_itself = targets_of_itself(search.arrival);
  search.patience->async_wait([this, host](const boost::system::error_code& error) {
    if (!error) end(host);
  });
  const std::vector<HostIndex> triers = search.triers;
  searches_.insert_or_assign(host, std::move(search));
  ask(host, host, of_itself);
  for (const HostIndex trier : triers) ask(trier, host, of_others);
}

void AddressBook::ask(HostIndex of, HostIndex about, std::vector<agent_link::ProbeTarget> targets) {
  agent_link::Probe probe;
  probe.id = ++last_question_;
  probe.timeout_ms = static_cast<std::uint32_t>(kProbeTimeout.count());
  questions_[probe.id] = {of, about, targets.size()};
  probe.targets = std::move(targets);
  callbacks_.send(of, probe);
}

void AddressBook::find_here(HostIndex host, const HostNetwork& network) {
  const auto door = door_here();
  if (!door) return callbacks_.on_trouble(host, cat(kHere, door.status().message()));
  here_ = door->host;
  known_[host] = {network.name, here_, true};
  callbacks_.on_found(host, {here_, *door});
}

Result<SocketAddress> AddressBook::door_here() {
  std::vector<std::string> wanted;
  if (!here_.empty()) {
    wanted = {here_};
  } else if (!wishes_.advertise_address.empty()) {
    wanted = {wishes_.advertise_address};
  } else if (!only_here_) {
    if (!reached_by_others_.empty()) wanted = {reached_by_others_};
    const auto own =
        candidates_of_this_machine(machine_interfaces(), "", {}, wishes_.network_interfaces);
    if (!own && !wishes_.network_interfaces.empty()) return own.status();
    if (own) wanted.insert(wanted.end(), own->begin(), own->end());
  }
  // A machine without a network, or without IPv4.
  if (here_.empty() && wishes_.advertise_address.empty() && wishes_.network_interfaces.empty()) {
    wanted.insert(wanted.end(), {"127.0.0.1", "::1"});
  }
  Status last;
  for (const auto& address : wanted) {
    if (const auto open = doors_.find(address); open != doors_.end()) return open->second;
    auto door = server_.listen({address, 0});
    if (door) {
      doors_[address] = *door;
      return door;
    }
    if (last.ok()) last = door.status();
  }
  return last;
}

Result<std::vector<SocketAddress>> AddressBook::doors_for(const HostNetwork& network) {
  auto candidates = candidates_of_this_machine(machine_interfaces(), wishes_.advertise_address,
                                               {network}, wishes_.network_interfaces);
  if (!candidates) return candidates.status();
  if (!here_.empty() &&
      std::find(candidates->begin(), candidates->end(), here_) == candidates->end() &&
      !is_loopback_address(here_)) {
    candidates->push_back(here_);
  }
  std::vector<SocketAddress> doors;
  std::vector<std::string> failures;
  for (const auto& address : *candidates) {
    if (const auto open = doors_.find(address); open != doors_.end()) {
      doors.push_back(open->second);
      continue;
    }
    if (auto door = server_.listen({address, 0})) {
      doors_[address] = *door;
      doors.push_back(*door);
    } else {
      failures.push_back(door.status().message());
    }
  }
  if (doors.empty()) {
    return Status(Code::unavailable,
                  cat(join(failures, "; "),
                      wishes_.advertise_address.empty() ? "" : " (--advertise-address)"));
  }
  return doors;
}

Status AddressBook::on_probed(HostIndex host, const agent_link::Probed& probed) {
  const auto question = questions_.find(probed.id);
  if (question == questions_.end() || question->second.of != host ||
      question->second.targets != probed.troubles.size()) {
    return {Code::data_loss, "it answered a probe that nobody had asked it for"};
  }
  const HostIndex about = question->second.about;
  questions_.erase(question);
  const auto search = searches_.find(about);
  if (search == searches_.end()) return {};  // it was settled without this answer
  if (host == about) {
    search->second.own = ProbeAnswer{probed.troubles, ""};
  } else {
    for (std::size_t i = 0; i < search->second.triers.size(); ++i) {
      if (search->second.triers[i] == host)
        search->second.tries[i].answer.troubles = probed.troubles;
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
  // Two that came at the same time may have been promised different families.
  auto candidates = of_one_family(search.arrival.candidates, address_in_use());
  if (!candidates) return callbacks_.on_trouble(host, candidates.status().message());
  const ProbeAnswer silent{{},
                           cat("its agent did not say within ", seconds_text(kAnswerTimeout),
                               " which addresses of this machine can be reached from it")};
  auto choice = choose_arrival(search.arrival, search.own.value_or(silent), search.tries);
  if (!choice) return callbacks_.on_trouble(host, choice.status().message());
  if (reached_by_others_.empty()) reached_by_others_ = choice->rendezvous.host;
  known_[host] = {search.arrival.host.name, choice->address, false};
  callbacks_.on_found(host, *choice);
}

void AddressBook::forget(HostIndex host) {
  known_.erase(host);
  searches_.erase(host);
  std::erase_if(questions_, [&](const auto& question) { return question.second.of == host; });
  // Who tried for others is not waited for.
  std::vector<HostIndex> about;
  for (auto& [other, search] : searches_) {
    for (std::size_t i = 0; i < search.triers.size(); ++i) {
      if (search.triers[i] != host || !search.tries[i].answer.troubles.empty()) continue;
      search.tries[i].answer.failure = "its agent went away";
      about.push_back(other);
    }
  }
  for (const HostIndex other : about) end_if_enough(other);
}

// By which family, that is.
std::string AddressBook::address_in_use() const {
  if (!here_.empty() && !is_loopback_address(here_)) return here_;
  for (const auto& [host, known] : known_) {
    if (!known.local) return known.address;
  }
  return {};
}

}  // namespace hvd::driver
