#include "driver/run/host_table.h"

#include <algorithm>
#include <utility>
#include <variant>

#include <boost/asio/post.hpp>

#include "base/port_range.h"
#include "driver/core/this_machine.h"

namespace hvd::driver {

HostTable::HostTable(const JobContext& context, const Job& job, const Preparation& preparation)
    : context_(context), job_(job) {
  for (const auto& host : preparation.hosts) {
    known_[host.name] = {host, preparation.local.contains(host.name)};
  }
  add_new_hosts();
}

void HostTable::on_event(const Event& event) {
  if (const auto* const found = std::get_if<event::HostsFound>(&event)) {
    known_.clear();
    for (const auto& host : found->hosts) known_[host.host.name] = host;
  }
  add_new_hosts();
}

void HostTable::forget_local() {
  for (auto& [name, host] : known_) {
    host.local = host.local && is_this_machine_without_lookup(name).value_or(false);
  }
}

void HostTable::add_new_hosts() {
  for (HostIndex host = hosts_.size(); host < job_.hosts().size(); ++host) {
    hosts_.push_back({known_.at(job_.hosts()[host].name), {}, nullptr});
  }
}

bool HostTable::are_all_here() const {
  return std::all_of(known_.begin(), known_.end(),
                     [](const auto& host) { return host.second.local; });
}

bool HostTable::has_agent_elsewhere() const {
  return std::any_of(hosts_.begin(), hosts_.end(),
                     [](const auto& host) { return host.session && host.session->pid() < 0; });
}

void HostTable::open_session(HostIndex host, AgentSessionOptions options,
                             AgentSessionCallbacks callbacks, AgentConnection connection) {
  hosts_[host].labels = std::move(connection.labels);
  hosts_[host].session = std::make_unique<AgentSession>(
      context_.io, std::move(options), std::move(callbacks), std::move(connection));
}

void HostTable::close_session_soon(HostIndex host) {
  boost::asio::post(context_.io, [this, host] { hosts_[host].session.reset(); });
}

void HostTable::end_sessions() {
  for (auto& host : hosts_) host.session.reset();
}

std::set<HostIndex> HostTable::broadcast(const SharedBytes& frame) {
  std::set<HostIndex> told;
  for (HostIndex host = 0; host < hosts_.size(); ++host) {
    if (!hosts_[host].session) continue;
    hosts_[host].session->send(frame);
    told.insert(host);
  }
  return told;
}

void HostTable::send_world(const WorldFrames& world) {
  for (HostIndex host = 0; host < hosts_.size(); ++host) {
    if (job_.hosts()[host].live > 0) send_world(host, world);
  }
}

void HostTable::send_world(HostIndex host, const WorldFrames& world) {
  if (hosts_[host].session) hosts_[host].session->send_world(world, name(host));
}

void HostTable::send_heartbeats() {
  for (const auto& host : hosts_) {
    if (host.session) host.session->send_heartbeat();
  }
}

void HostTable::report_liveness(TimePoint now, Duration pace) {
  // A report may end a session, and add hosts.
  for (HostIndex host = 0; host < hosts_.size(); ++host) {
    if (hosts_[host].session) hosts_[host].session->report_liveness(now, pace);
  }
}

HostNetwork HostTable::network_of(HostIndex host) const {
  const RunningHost& self = hosts_[host];
  HostNetwork network;
  network.name = self.found.host.name;
  network.local = self.found.local;
  network.advertise_address = self.found.host.advertise_address;
  network.interfaces = self.session->ready().interfaces;
  network.peer_address = self.session->peer_address();
  network.local_address = self.session->local_address();
  network.probe_port = self.session->ready().probe_port;
  network.probe_greeting = self.session->ready().probe_greeting;
  return network;
}

Status HostTable::check_ports(HostIndex host, int workers) const {
  const JobSpec& spec = context_.spec;
  if (!spec.ports) return {};
  const std::string& error = hosts_[host].session->ready().port_error;
  if (!error.empty()) return {Code::resource_exhausted, error};

  const event::FoundHost& found = hosts_[host].found;
  const int of_hvdrun = found.local ? spec.ports_of_hvdrun : 0;
  return driver::check_ports(*spec.ports, found.host.name, workers, of_hvdrun);
}

std::optional<std::uint16_t> HostTable::free_port_at(HostIndex host,
                                                     const std::string& address) const {
  if (hosts_[host].found.local) {
    const auto port = free_port(address, context_.spec.ports);
    return port ? std::optional(*port) : std::nullopt;
  }
  const auto& session = hosts_[host].session;
  const std::uint16_t port = session ? session->ready().free_port : 0;
  return port == 0 ? std::nullopt : std::optional(port);
}

}  // namespace hvd::driver
