#include "driver/agents/address_search.h"

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/clock.h"
#include "base/machine/machine.h"
#include "base/socket.h"
#include "base/text.h"

namespace hvd::driver {
namespace {

// Within this machine a connection is made at once, or nobody answers.
constexpr std::chrono::seconds kLoopbackLimit{2};

// A program may listen at an address of an interface that is down, but nobody connects to it.
Status reach_myself(const SocketAddress& listener) {
  const auto connected = connect_tcp(listener, Clock::now() + kLoopbackLimit);
  if (connected.ok()) return {};
  return {connected.status().code(),
          cat("this machine does not reach itself: ", connected.status().message(),
              "; `ip link show lo` tells whether the loopback interface is up")};
}

}  // namespace

AddressSearch::AddressSearch(boost::asio::io_context& io, rendezvous::Server& server,
                             std::vector<HostNetwork> hosts, AddressPreferences preferences,
                             Send send, End end)
    : server_(server),
      preferences_(std::move(preferences)),
      send_(std::move(send)),
      end_(std::move(end)),
      timeout_(io) {
  problem_.hosts = std::move(hosts);
}

void AddressSearch::begin() {
  const bool all_here = std::all_of(problem_.hosts.begin(), problem_.hosts.end(),
                                    [](const HostNetwork& host) { return host.local; });
  if (all_here) {
    choose_loopback();
    return;
  }

  AddressChoice failed;
  find_candidates(failed.errors);
  if (failed.errors.empty()) open_listeners(failed.errors);
  if (!failed.errors.empty()) {
    end_with(std::move(failed));
    return;
  }

  tasks_ = plan_probes(problem_);
  answers_.resize(tasks_.size());
  answered_.resize(tasks_.size());
  for (std::size_t index = 0; index < tasks_.size(); ++index) {
    agent_link::Probe probe;
    probe.id = static_cast<std::uint32_t>(index + 1);
    probe.timeout_ms = static_cast<std::uint32_t>(kProbeTimeout.count());
    probe.targets = tasks_[index].targets;
    send_(tasks_[index].prober, probe);
  }

  timeout_.begin(kAnswerTimeout, [this] {
    for (std::size_t index = 0; index < tasks_.size(); ++index) {
      if (answered_[index]) continue;
      answers_[index].failure =
          cat("its agent did not report within ", seconds_text(kAnswerTimeout),
              " which addresses can be reached from it");
      answered_[index] = true;
    }
    end_if_complete();
  });
}

void AddressSearch::choose_loopback() {
  AddressChoice choice;
  auto listener = server_.listen({"127.0.0.1", 0});
  if (!listener) {  // a machine without IPv4
    if (auto v6 = server_.listen({"::1", 0})) listener = std::move(v6);
  }
  if (!listener) {
    choice.errors.emplace_back(
        0, cat("the rendezvous service could not be started: ", listener.status().message()));
  } else if (const Status reached = reach_myself(*listener); !reached.ok()) {
    choice.errors.emplace_back(0, reached.message());
  } else {
    choice.addresses.assign(problem_.hosts.size(), listener->host);
    choice.rendezvous.assign(problem_.hosts.size(), *listener);
  }
  end_with(std::move(choice));
}

void AddressSearch::find_candidates(HostErrors& errors) {
  for (HostIndex host = 0; host < problem_.hosts.size(); ++host) {
    problem_.candidates.emplace_back();
    if (problem_.hosts[host].local) continue;
    auto candidates = candidates_of(problem_.hosts[host], preferences_.network_interfaces);
    if (candidates) {
      problem_.candidates.back() = *std::move(candidates);
    } else {
      errors.emplace_back(host, candidates.status().message());
    }
  }
}

void AddressSearch::open_listeners(HostErrors& errors) {
  const auto candidates =
      candidates_of_this_machine(machine_interfaces(), preferences_.advertise_address,
                                 problem_.hosts, preferences_.network_interfaces);
  if (!candidates) {
    errors.emplace_back(0, cat(kHere, candidates.status().message()));
    return;
  }

  std::vector<std::string> failures;
  for (const auto& address : *candidates) {
    const auto listener = server_.listen({address, 0});
    if (listener) {
      problem_.rendezvous.push_back(*listener);
    } else {
      failures.push_back(listener.status().message());
    }
  }
  if (!problem_.rendezvous.empty()) return;
  errors.emplace_back(0,
                      cat(kHere, join(failures, "; "),
                          preferences_.advertise_address.empty() ? "" : " (--advertise-address)"));
}

Status AddressSearch::on_probed(HostIndex host, const agent_link::Probed& probed) {
  const std::size_t index = std::size_t{probed.id} - 1;
  if (probed.id == 0 || index >= tasks_.size() || tasks_[index].prober != host ||
      probed.errors.size() != tasks_[index].targets.size()) {
    return {Code::data_loss, "it answered a probe that it was not sent"};
  }
  if (answered_[index]) return {};  // after the timeout
  answers_[index].errors = probed.errors;
  answered_[index] = true;
  end_if_complete();
  return {};
}

void AddressSearch::end_if_complete() {
  if (std::find(answered_.begin(), answered_.end(), false) != answered_.end()) return;
  timeout_.cancel();
  end_with(choose_addresses(problem_, tasks_, answers_));
}

void AddressSearch::end_with(AddressChoice choice) {
  if (!end_) return;
  for (const auto& listener : problem_.rendezvous) {
    const bool used = std::any_of(
        choice.rendezvous.begin(), choice.rendezvous.end(), [&](const SocketAddress& chosen) {
          return chosen.host == listener.host && chosen.port == listener.port;
        });
    if (!used) server_.close(listener);
  }
  const End end = std::exchange(end_, nullptr);
  end(choice);
}

}  // namespace hvd::driver
