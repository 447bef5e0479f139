#include "driver/job/hosts.h"

#include <algorithm>
#include <utility>

namespace hvd::driver {

HostIndex Hosts::add(const std::string& name, bool local) {
  const HostIndex index = all_.size();
  JobHost host;
  host.name = name;
  host.local = local;
  all_.push_back(std::move(host));

  present_.insert(index);
  current_[name] = index;
  ++counts_[static_cast<std::size_t>(HostState::planned)];
  heartbeats_.add(local);
  return index;
}

void Hosts::move(HostIndex index, HostState to) {
  JobHost& host = all_[index];
  check_move(host.state, to);
  --counts_[static_cast<std::size_t>(host.state)];
  ++counts_[static_cast<std::size_t>(to)];
  host.state = to;

  if (to == HostState::dropping || to == HostState::gone) {
    heartbeats_.forget(index);
    sought_.erase(index);
  }
  if (to != HostState::gone) return;
  host.deadline = kNever;
  present_.erase(index);
  if (current(host.name) == index) current_.erase(host.name);
}

std::optional<HostIndex> Hosts::current(const std::string& name) const {
  const auto host = current_.find(name);
  if (host == current_.end()) return std::nullopt;
  return host->second;
}

bool Hosts::is_believed(HostIndex host) const {
  const HostState state = all_[host].state;
  return state == HostState::starting || state == HostState::ready || state == HostState::closing;
}

bool Hosts::is_usable(HostIndex host) const {
  const JobHost& one = all_[host];
  return one.state == HostState::ready && !one.address.empty() && !one.leaves;
}

void Hosts::seek_all() {
  for (const HostIndex host : present_) {
    const HostState state = all_[host].state;
    if (state == HostState::ready || state == HostState::closing) sought_.insert(host);
  }
}

TimePoint Hosts::next_deadline() const {
  TimePoint next = kNever;
  for (const HostIndex host : present_) {
    if (!is_sought(host)) next = std::min(next, all_[host].deadline);
  }
  return next;
}

std::vector<std::string> Hosts::names() const {
  std::vector<std::string> names;
  for (const auto& host : all_) names.push_back(host.name);
  return names;
}

}  // namespace hvd::driver
