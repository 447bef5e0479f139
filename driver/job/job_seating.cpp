// Who works where: known when the job begins, or planned when every agent has said how much room
// its host has.
#include <set>
#include <utility>

#include "base/text.h"
#include "driver/job/job.h"

namespace hvd::driver {
namespace {

Heartbeats heartbeats_of(const JobOptions& options, const std::vector<std::string>& hosts) {
  const std::set<std::string> names(options.local_hosts.begin(), options.local_hosts.end());
  std::vector<bool> local;
  for (const auto& host : hosts) local.push_back(names.count(host) != 0);
  return {{options.heartbeat_timeout, options.orphan_timeout}, std::move(local)};
}

std::vector<std::string> hosts_of(const std::vector<WorldMember>& members) {
  std::vector<std::string> hosts;
  for (const auto& member : members) {
    if (hosts.empty() || hosts.back() != member.host) hosts.push_back(member.host);
  }
  return hosts;
}

std::vector<std::string> hosts_of(const PlanRequest& request) {
  std::vector<std::string> hosts;
  for (const auto& host : request.hosts) hosts.push_back(host.name);
  return hosts;
}

}  // namespace

Job::Job(JobOptions options, const std::vector<std::string>& hosts)

    : options_(std::move(options)),
      heartbeats_(heartbeats_of(options_, hosts)),
      init_watch_(options_.init_timeout) {
  for (const auto& host : hosts) {
    hosts_.emplace_back();
    hosts_.back().name = host;
  }
  agents_ = unanswered_ = seated_ = hosts_.size();
}

Job::Job(JobOptions options, std::vector<WorldMember> members)
    : Job(std::move(options), hosts_of(members)) {
  seat(std::move(members));
}

Job::Job(JobOptions options, PlanRequest request) : Job(std::move(options), hosts_of(request)) {
  request_ = std::move(request);
}

void Job::seat(std::vector<WorldMember> members) {
  Incarnation incarnation = first_incarnation_;
  HostIndex index = 0;
  for (auto& member : members) {
    if (hosts_[index].name != member.host) ++index;
    member.incarnation = incarnation++;
    JobHost& host = hosts_[index];
    host.workers.push_back(workers_.size());
    ++host.live;
    ++host.unstarted;
    workers_.push_back({std::move(member), index, WorkerState::planned, 0, {}, false});
  }
  live_ = unstarted_ = absent_ = static_cast<int>(workers_.size());
  seated_ = index + 1;
}

void Job::hear_capacity(HostIndex host, const Capacity& capacity) {
  if (!request_ || request_->hosts[host].slots > 0) return;
  HostSlots& there = request_->hosts[host];
  there.slots = slots_found(there, slots_by(capacity));
  say(slots_text(there, capacity));
}

bool Job::plan() {
  if (!request_) return true;
  const PlanRequest request = *std::exchange(request_, std::nullopt);
  auto plan = plan_static(request.hosts, request.processes, request.oversubscribe);
  if (!plan.ok()) {
    JobFailure failure;
    failure.cause = plan.status().message();
    fail(std::move(failure), kOwnTrouble);
    return false;
  }
  if (!plan->oversubscription.empty()) warn(plan->oversubscription);
  seat(std::move(plan->members));
  actions_.emplace_back(action::PlanStands{});
  for (HostIndex host = seated_; host < hosts_.size(); ++host) {
    say(cat("host ", hosts_[host].name, " is not needed"));
    // Nobody minds how it leaves.
    heartbeats_.forget(host);
    shut_down(host);
  }
  return true;
}

void Job::shut_down(HostIndex host) {
  move(host, HostState::closing);
  hosts_[host].deadline = now_ + options_.close_timeout;
  actions_.emplace_back(action::ShutDownAgent{host});
}

}  // namespace hvd::driver
