// Hosts of an elastic job: they are found, visited, lost, rest, and are visited again.
#include <algorithm>
#include <utility>

#include "base/text.h"
#include "driver/job/elastic_job.h"
#include "driver/job/plan.h"

namespace hvd::driver {
void ElasticJob::on(const event::Begin& /*event*/) {
  if (state_ != ElasticState::planned) return;
  move(ElasticState::gathering);
  begun_ = now_;
  state_deadline_ = now_ + options_.elastic_timeout;
}

void ElasticJob::on(const event::HostsFound& event) {
  found_ = event.hosts;
  std::set<std::string> names;
  for (const auto& found : *found_) names.insert(found.host.name);
  std::erase_if(troubles_, [&](const auto& trouble) { return names.count(trouble.first) == 0; });
  decide_within(kAtOnce);
}

void ElasticJob::on(const event::DiscoveryFailed& event) {
  if (found_) return;  // the last good answer stays in force
  JobFailure failure;
  failure.cause = event.message;
  fail(std::move(failure), kOwnTrouble);
}

// ---- a visit ----

// Begins visits of hosts that are found, have none, and do not rest.
void ElasticJob::visit_hosts() {
  for (const auto& found : *found_) {
    const auto visit = visit_of_.find(found.host.name);
    if (visit != visit_of_.end() || budget_.rests(found.host.name, now_)) continue;
    const HostIndex index = hosts_.size();
    visit_of_[found.host.name] = index;
    ElasticHost host;
    host.name = found.host.name;
    host.local = found.local;
    // Its turn may have to come first; then each step has a deadline of its own.
    host.deadline = kNever;
    hosts_.push_back(std::move(host));
    heartbeats_.add(found.local);
    ++agents_;
    move(index, HostState::starting);
    actions_.emplace_back(action::StartAgent{index});
  }
}

// Of hosts that are no longer found, and have no worker left.
void ElasticJob::end_visits() {
  std::set<std::string> found;
  for (const auto& one : *found_) found.insert(one.host.name);
  for (const auto& [name, index] : visit_of_) {
    ElasticHost& host = hosts_[index];
    if ((found.count(name) != 0 && !host.leaves) || host.live > 0) continue;
    if (host.state == HostState::starting) {
      drop(index);
    } else if (host.state == HostState::ready) {
      move(index, HostState::closing);
      host.deadline = now_ + options_.job.close_timeout;
      actions_.emplace_back(action::ShutDownAgent{index});
    }
  }
}

void ElasticJob::on(const event::HostProgress& event) {
  ElasticHost& host = hosts_[event.host];
  if (host.state != HostState::starting) return;
  host.step = event.step;
  host.deadline = now_ + options_.job.start_timeout;
}

void ElasticJob::on(const event::AgentReady& event) {
  if (!believed(event.host)) return;
  ElasticHost& host = hosts_[event.host];
  if (host.state != HostState::starting) {
    broken(event.host, "it said twice that it was ready");
    return;
  }
  move(event.host, HostState::ready);
  host.step = Step::reach;
  hear_capacity(host.name, event.capacity);
  host.deadline = now_ + options_.job.start_timeout;
  if (heartbeats_.watch(event.host, now_)) say_heard(event.host);
  if (!stop_has_begun()) actions_.emplace_back(action::FindAddress{event.host});
}

void ElasticJob::hear_capacity(const std::string& host, const Capacity& capacity) {
  const auto found = std::find_if(found_->begin(), found_->end(), [&](const event::FoundHost& one) {
    return one.host.name == host;
  });
  if (found != found_->end() && found->host.slots == 0) {
    say(slots_text(found->host, capacity));
  }
  counted_[host] = slots_by(capacity);
}

void ElasticJob::on(const event::AddressFound& event) {
  ElasticHost& host = hosts_[event.host];
  if (host.state != HostState::ready || !host.address.empty() || event.address.empty()) return;
  host.address = event.address;
  host.deadline = kNever;
  troubles_.erase(host.name);
  say(cat("host ", host.name, " is ready"));
  decide_within(kAtOnce);
}

void ElasticJob::on(const event::HostFailed& event) {
  const ElasticHost& host = hosts_[event.host];
  if (host.state == HostState::gone) return;
  const bool was_wanted = host.state == HostState::starting || host.state == HostState::ready;
  // Out of reach although its agent is there: it is told to leave.
  const bool agent_is_there = host.state == HostState::ready;
  if (was_wanted) {
    host_failed(event.host, event.trouble.step, event.trouble.message, event.trouble.exit_code);
  }
  if (agent_is_there) {
    drop(event.host);
  } else {
    leave(event.host);
  }
}

void ElasticJob::on(const event::HostLeaves& event) {
  ElasticHost& host = hosts_[event.host];
  if (!believed(event.host) || host.leaves) return;
  host.leaves = true;
  say(cat("host ", host.name, " was told to go"));
  for (const std::size_t worker : std::vector<std::size_t>(host.workers)) {
    if (live_.count(worker) == 0 || workers_[worker].standing == Standing::out) continue;
    send_away(worker, cat("host ", host.name, " is taken away"), true);
  }
  decide_within(kAtOnce);
}

// ---- loss ----

// The next visit waits until it has rested.
void ElasticJob::host_failed(HostIndex index, Step step, const std::string& message,
                             int exit_code) {
  const ElasticHost& host = hosts_[index];
  if (stop_has_begun()) {
    if (host.state != HostState::starting) warn(cat("host ", host.name, ": ", message));
    return;
  }
  // One that was of use gets another chance at once.
  const TimePoint until = usable(index) ? budget_.host_lost(host.name, now_, random())
                                        : budget_.host_failed(host.name, now_, random());
  decide_within(kAtOnce);
  if (host.leaves) return;  // as it had been told to
  troubles_[host.name] = {step, message, exit_code};
  warn(cat("host ", host.name, ": ", name_of(step), ": ", message,
           is_found(host.name) ? cat("; it ", rest_text(until)) : ""));
}

void ElasticJob::broken(HostIndex host, const std::string& what) {
  host_failed(host, Step::start_agent, cat("its agent broke the protocol: ", what), kOwnTrouble);
  drop(host);
}

void ElasticJob::drop(HostIndex host) {
  move(host, HostState::dropping);
  hosts_[host].deadline = now_ + options_.job.drop_timeout;
  actions_.emplace_back(action::DropAgent{host});
  // Nobody waits for them: their agent freezes and kills by itself if it is cut off.
  lose_workers(host, "was lost with its host");
}

void ElasticJob::drop_all(const std::string& why, bool only_with_workers) {
  std::vector<std::string> dropped;
  for (HostIndex index = 0; index < hosts_.size(); ++index) {
    if (!believed(index) || (only_with_workers && hosts_[index].live == 0)) continue;
    dropped.push_back(hosts_[index].name);
    drop(index);
  }
  if (!dropped.empty()) {
    warn(cat(why, ": killing ", dropped.size() == 1 ? "the agent on " : "the agents on ",
             names_text(dropped)));
  }
}

// The visit is over.
void ElasticJob::leave(HostIndex index) {
  ElasticHost& host = hosts_[index];
  move(index, HostState::gone);
  host.deadline = kNever;
  --agents_;
  if (const auto visit = visit_of_.find(host.name);
      visit != visit_of_.end() && visit->second == index) {
    visit_of_.erase(visit);
  }
  lose_workers(index, "was lost with its host");
  decide_within(kAtOnce);
  if (!host.leaves || stop_has_begun()) return;
  // Whoever told it to go is about to take it away, whatever discovery still says.
  const TimePoint until = budget_.host_failed(host.name, now_, random());
  say(cat("host ", host.name, " has left; it ", rest_text(until)));
}

void ElasticJob::lose_workers(HostIndex host, const std::string& how) {
  for (const std::size_t index : std::vector<std::size_t>(hosts_[host].workers)) {
    if (live_.count(index) == 0) continue;
    const bool wanted = workers_[index].standing != Standing::out;
    const bool was_done = workers_[index].state == WorkerState::done;
    end(index, workers_[index].state == WorkerState::planned ? WorkerState::never_started
                                                             : WorkerState::lost);
    workers_[index].well = was_done && wanted;
    workers_[index].how = cat("was lost with host ", hosts_[host].name);
    if (wanted && !was_done && !stop_has_begun()) note_cause(workers_[index], how, kOwnTrouble);
    decide_within(options_.loss_gather);
  }
}

void ElasticJob::on(const event::AgentGone& event) {
  const HostState before = hosts_[event.host].state;
  if (before == HostState::gone) return;
  if (before == HostState::starting) {
    host_failed(event.host, Step::start_agent,
                cat("its agent ended before it was ready: it ", event.how), kOwnTrouble);
  } else if (before == HostState::ready) {
    host_failed(event.host, Step::start_agent, cat("its agent went away: it ", event.how),
                kOwnTrouble);
  }
  leave(event.host);
}

void ElasticJob::on(const event::AgentBroken& event) {
  if (believed(event.host)) broken(event.host, event.how);
}

void ElasticJob::on(const event::Heard& event) {
  if (heartbeats_.hear(event.host, now_)) say_heard(event.host);
}

void ElasticJob::say_heard(HostIndex host) {
  warn(cat("host ", hosts_[host].name, " is heard; the others get another ",
           seconds_text(options_.job.heartbeat_timeout)));
}

void ElasticJob::on(const event::Unserved& event) { heartbeats_.excuse(event.host, now_); }

void ElasticJob::on_silence() {
  if (const auto held_up = heartbeats_.look(now_)) {
    say(cat("hvdrun was held up for ",
            seconds_text(std::chrono::ceil<std::chrono::milliseconds>(*held_up)),
            ": hosts that were not heard meanwhile get another ",
            seconds_text(options_.job.heartbeat_timeout)));
  }
  if (heartbeats_.next_look() > now_) return;
  const auto judgement = heartbeats_.judge(now_);
  if (judgement.delay_begins) {
    warn(cat(heartbeats_.delaying_everybody() ? "no host" : "no other machine",
             " has been heard for ", seconds_text(options_.job.heartbeat_timeout),
             " (--heartbeat-timeout): this machine may be cut off or overloaded, so none is given "
             "up yet; waiting for one of them"));
  }
  for (const HostIndex host : judgement.lost) {
    host_failed(host, Step::reach,
                cat("no sign of life for ", seconds_text(judgement.silent_for),
                    judgement.delayed ? " (--orphan-timeout)" : " (--heartbeat-timeout)",
                    hosts_[host].local ? ": its agent hangs or was stopped"
                                       : ": the host is lost or cut off"),
                kOwnTrouble);
    drop(host);
  }
}

void ElasticJob::on_host_deadlines() {
  for (HostIndex index = 0; index < hosts_.size(); ++index) {
    ElasticHost& host = hosts_[index];
    if (host.deadline > now_) continue;
    host.deadline = kNever;
    switch (host.state) {
      case HostState::starting:
      case HostState::ready:
        host_failed(index, host.step.value_or(Step::start_agent),
                    cat("no answer within ", seconds_text(options_.job.start_timeout),
                        " (--start-timeout)"),
                    kOwnTrouble);
        drop(index);
        break;
      case HostState::closing:
        warn(cat("the agent on host ", host.name, " did not leave within ",
                 seconds_text(options_.job.close_timeout), "; killing it"));
        drop(index);
        break;
      case HostState::dropping:
        warn(cat("the agent on host ", host.name, " is not gone ",
                 seconds_text(options_.job.drop_timeout), " after it was given up"));
        leave(index);
        break;
      case HostState::planned:
      case HostState::gone:
        break;
    }
  }
}

bool ElasticJob::usable(HostIndex host) const {
  return hosts_[host].state == HostState::ready && !hosts_[host].address.empty() &&
         !hosts_[host].leaves;
}

bool ElasticJob::is_found(const std::string& host) const {
  return found_ && std::any_of(found_->begin(), found_->end(),
                               [&](const event::FoundHost& one) { return one.host.name == host; });
}

bool ElasticJob::believed(HostIndex host) const {
  const HostState state = hosts_[host].state;
  return state == HostState::starting || state == HostState::ready || state == HostState::closing;
}

}  // namespace hvd::driver
