// Hosts of a job: they are found, used, lost, rest, and are used again.
#include <algorithm>
#include <set>
#include <utility>

#include "base/clock.h"
#include "base/text.h"
#include "driver/job/job.h"

namespace hvd::driver {

// ---- they are named ----

void Job::on(const event::Begin& /*event*/) {
  if (state_ != JobState::planned) return;
  move(JobState::preparing);
  begun_ = now_;
  deadlines_.state = now_ + options_.elastic.elastic_timeout;
  something_moved();
  for (HostIndex host = 0; host < hosts_.size(); ++host) start_agent(host);
}

void Job::on(const event::HostsFound& event) {
  if (!policy_.discovers_hosts) return;
  roster_.name(event.hosts, now_);
  group_.trust_hosts_if([this](const std::string& host) { return roster_.is_old(host); });
  decide_within(kAtOnce);
}

void Job::on(const event::DiscoveryFailed& event) {
  if (roster_.is_known()) return;  // the last good answer stays in force
  fail_because(event.message);
}

// ---- they become ready ----

void Job::start_agent(HostIndex host) {
  hosts_.move(host, HostState::starting);
  actions_.emplace_back(action::StartAgent{host});
}

// On hosts that are found, have no agent, and do not rest.
void Job::start_agents() {
  for (const auto& found : roster_.used()) {
    const std::string& name = found.host.name;
    if (hosts_.current(name) || roster_.budget().rests(name, now_)) continue;
    // There is no deadline yet, since others may have their turn first.
    const HostIndex host = hosts_.add(name, found.local);
    hosts_[host].joins = found.joins;
    trust_slots_of(name);
    start_agent(host);
  }
}

void Job::on(const event::HostProgress& event) {
  JobHost& host = hosts_[event.host];
  if (host.state != HostState::starting) return;
  host.step = event.step;
  host.deadline = now_ + options_.start_timeout;
  something_moved();
}

void Job::on(const event::AgentReady& event) {
  if (!hosts_.is_believed(event.host)) return;
  JobHost& host = hosts_[event.host];
  if (host.state != HostState::starting) {
    broken(event.host, "it said twice that it was ready");
    return;
  }
  hosts_.move(event.host, HostState::ready);
  hear_capacity(event.host, event.capacity);
  if (hosts_.heartbeats().watch(event.host, now_)) say_heard(event.host);
  something_moved();

  if (!policy_.discovers_hosts) {
    host.deadline = kNever;  // addresses are chosen for all hosts together
    return;
  }
  host.step = Step::reach;
  host.deadline = now_ + options_.start_timeout;
  if (!stop_has_begun()) actions_.emplace_back(action::FindAddress{event.host});
}

void Job::hear_capacity(HostIndex host, const Capacity& capacity) {
  const std::string& name = hosts_[host].name;
  if (list_.request) {
    HostSlots& there = list_.request->hosts[host];
    if (there.slots > 0) return;
    there.slots = slots_found(there, slots_by(capacity));
    say(slots_text(there, capacity));
    return;
  }
  const event::FoundHost* const one = roster_.find_used(name);
  if (one != nullptr && one->host.slots == 0) say(slots_text(one->host, capacity));
  roster_.count_slots(name, slots_by(capacity));
}

void Job::on(const event::AddressFound& event) {
  JobHost& host = hosts_[event.host];
  if (host.state != HostState::ready || !host.address.empty() || event.address.empty()) return;
  host.address = event.address;
  host.deadline = kNever;
  roster_.forget_error(host.name);
  say(cat("host ", host.name, " is ready"));
  decide_within(kAtOnce);
}

// ---- they are no longer wanted ----

void Job::on(const event::HostLeaves& event) {
  JobHost& host = hosts_[event.host];
  if (!policy_.discovers_hosts || !hosts_.is_believed(event.host)) return;
  const bool is_known = std::exchange(host.leaves, true);
  const TimePoint before = host.gone_at;
  if (event.left) host.gone_at = std::min(before, now_ + *event.left);
  if (is_known && host.gone_at == before) return;

  if (event.is_notice) {
    notice(cat("host ", host.name, " has a notice: it is about to be taken away",
               event.left ? cat(", in ", seconds_text(*event.left)) : std::string(),
               "; its workers leave at the next commit"));
  } else {
    say(cat("host ", host.name, " was told to go"));
  }
  for (const std::size_t worker : std::vector<std::size_t>(host.workers)) {
    const bool is_live = !has_ended(workers_[worker].state);
    if (!is_live || workers_[worker].membership == MemberStatus::removed) continue;
    send_away(worker, cat("host ", host.name, " is taken away"), true);
  }
  decide_within(kAtOnce);
}

// Hosts that are no longer found, and have no worker left.
void Job::release_hosts() {
  std::set<std::string> names;
  for (const auto& one : roster_.used()) names.insert(one.host.name);
  for (const auto& [name, index] : hosts_.current()) {
    const JobHost& host = hosts_[index];
    if ((names.count(name) != 0 && !host.leaves) || host.live > 0) continue;
    if (host.state == HostState::starting) {
      drop(index);
    } else if (host.state == HostState::ready) {
      shut_down(index);
    }
  }
}

void Job::shut_down(HostIndex host) {
  hosts_.move(host, HostState::closing);
  hosts_[host].deadline = now_ + options_.close_timeout;
  actions_.emplace_back(action::ShutDownAgent{host, state_ == JobState::closing ? exit_code() : 0});
}

void Job::drop(HostIndex host) {
  hosts_.move(host, HostState::dropping);
  hosts_[host].deadline = now_ + options_.drop_timeout;
  actions_.emplace_back(action::DropAgent{host});
  // Nobody waits for them: their agent freezes and kills by itself if it is cut off.
  if (policy_.restarts_workers) lose_workers(host, "was lost with its host");
}

void Job::drop_all(const std::string& why, bool only_with_workers) {
  std::vector<std::string> dropped;
  for (const HostIndex index : std::set<HostIndex>(hosts_.present())) {
    if (!hosts_.is_believed(index) || (only_with_workers && hosts_[index].live == 0)) continue;
    dropped.push_back(hosts_[index].name);
    drop(index);
  }
  if (!dropped.empty()) {
    warn(cat(why, ": killing ", dropped.size() == 1 ? "the agent on " : "the agents on ",
             names_text(dropped)));
  }
}

// ---- loss ----

// A host that is discovered rests before it is used again.
void Job::host_failed(HostIndex index, Step step, const std::string& message, int exit_code) {
  if (!policy_.discovers_hosts) {
    listed_host_failed(index, step, message, exit_code);
    return;
  }
  const JobHost& host = hosts_[index];
  if (stop_has_begun()) {
    if (host.state != HostState::starting) warn(cat("host ", host.name, ": ", message));
    return;
  }
  // One that was of use gets another chance at once.
  SlotBudget& budget = roster_.budget();
  const TimePoint until = hosts_.is_usable(index) ? budget.host_lost(host.name, now_, random())
                                                  : budget.host_failed(host.name, now_, random());
  decide_within(kAtOnce);
  if (host.leaves) return;  // as it had been told to
  roster_.note_error(host.name, {step, message, exit_code});
  std::string next;
  if (host.joins && until <= now_) {
    next = "; it may join again";
  } else if (roster_.find_used(host.name) != nullptr) {
    next = cat("; it ", rest_text(until));
  }
  warn(cat("host ", host.name, ": ", name_of(step), ": ", message, next));
}

void Job::on(const event::HostFailed& event) {
  const HostState before = hosts_[event.host].state;
  if (before == HostState::planned || before == HostState::gone) return;
  const HostError& error = event.error;
  // Out of reach although its agent is there, which is told to leave.
  const bool agent_is_there =
      before == HostState::ready && (policy_.discovers_hosts || state_ == JobState::choosing);
  if (agent_is_there) {
    host_failed(event.host, error.step, error.message, error.exit_code);
    if (policy_.discovers_hosts) drop(event.host);
    return;
  }
  lose_agent(event.host, error);
}

// The step in which the host is, as far as its agent is concerned.
Step Job::step_of_agent(HostIndex host) const {
  return policy_.discovers_hosts && hosts_.is_usable(host) ? Step::run_workers : Step::start_agent;
}

void Job::on(const event::AgentGone& event) {
  const HostState before = hosts_[event.host].state;
  if (before == HostState::planned || before == HostState::gone) return;
  const bool was_ready = before == HostState::ready;
  lose_agent(event.host, {step_of_agent(event.host),
                          cat(was_ready ? "its agent went away: it "
                                        : "its agent ended before it was ready: it ",
                              event.how),
                          kLauncherError});
}

// No agent is there any more.
void Job::lose_agent(HostIndex host, const HostError& error) {
  const HostState before = hosts_[host].state;
  const bool was_wanted = before == HostState::starting || before == HostState::ready;
  const int exit_code = before == HostState::starting ? error.exit_code : kLauncherError;
  const auto tell = [&] {
    if (was_wanted) host_failed(host, error.step, error.message, exit_code);
  };
  if (policy_.discovers_hosts) {
    tell();  // before the host is gone: it matters whether it was of use
    leave(host);
    return;
  }
  leave(host);
  if (before == HostState::starting) something_moved();
  tell();
}

void Job::on(const event::AgentBroken& event) {
  if (hosts_.is_believed(event.host)) broken(event.host, event.how);
}

void Job::broken(HostIndex host, const std::string& what) {
  const std::string message = cat("its agent broke the protocol: ", what);
  if (policy_.discovers_hosts) {
    host_failed(host, step_of_agent(host), message, kLauncherError);
    drop(host);
    return;
  }
  drop(host);
  if (state_ == JobState::closing || !is_needed(host)) {
    // The job's outcome stands: every worker has ended; or it does not depend on this host.
    warn(cat("the agent on host ", hosts_[host].name, " broke the protocol: ", what));
  } else {
    host_failed(host, Step::start_agent, message, kLauncherError);
  }
}

void Job::leave(HostIndex index) {
  hosts_.move(index, HostState::gone);
  if (hosts_[index].joins) roster_.joined_agent_is_gone(hosts_[index].name);
  lose_workers(index, "was lost with its host");
  decide_within(kAtOnce);
  const JobHost& host = hosts_[index];
  if (!host.leaves || stop_has_begun()) return;
  // An agent that joins comes again when its machine is there again.
  if (host.joins) return say(cat("host ", host.name, " has left; it may join again"));
  // The sender of the signal is about to take the host away, whatever discovery still says.
  TimePoint until = roster_.budget().host_failed(host.name, now_, random());
  if (host.gone_at != kNever) until = roster_.budget().prolong_rest(host.name, host.gone_at);
  say(cat("host ", host.name, " has left; it ", rest_text(until)));
}

void Job::lose_workers(HostIndex host, const std::string& how) {
  for (const std::size_t index : std::vector<std::size_t>(hosts_[host].workers)) {
    JobWorker& worker = workers_[index];
    if (has_ended(worker.state)) continue;
    const bool wanted = worker.membership != MemberStatus::removed;
    const bool was_done = worker.state == WorkerState::done;
    end(index,
        worker.state == WorkerState::planned ? WorkerState::never_started : WorkerState::lost);
    if (was_done && wanted) workers_.move(index, MemberStatus::completed);
    worker.how = cat("was lost with host ", hosts_[host].name);
    if (wanted) group_.hit();
    if (wanted && !was_done && !stop_has_begun()) note_cause(worker, how, kLauncherError);
    decide_within(options_.elastic.loss_gather);
  }
}

// ---- silence and deadlines ----

void Job::on(const event::Heard& event) {
  if (hosts_.find(event.host)) {
    JobHost& host = hosts_[event.host];
    if (host.deadline != kNever) host.deadline += now_ - sought_since_;
    say(cat("the agent of host ", host.name, " is found again"));
  }
  if (hosts_.heartbeats().hear(event.host, now_)) say_heard(event.host);
}

void Job::on(const event::Unserved& event) { hosts_.heartbeats().excuse(event.host, now_); }

// The looks for silent hosts in the stretch have found none. The next tick looks again, earlier
// than it may have to, which changes nothing either: a verdict comes at the first tick at which it
// is due.
void Job::on(const event::Quiet& event) {
  Heartbeats& heartbeats = hosts_.heartbeats();
  for (const auto& [host, ago] : event.heard) heartbeats.hear(host, time_.own(clock_ - ago));
  for (const auto& [host, ago] : event.unserved) heartbeats.excuse(host, time_.own(clock_ - ago));
}

void Job::say_heard(HostIndex host) {
  warn(cat("host ", hosts_[host].name, " is heard; the others get another ",
           seconds_text(options_.heartbeat_timeout)));
}

void Job::on_silence() {
  Heartbeats& heartbeats = hosts_.heartbeats();
  const std::string limit = seconds_text(options_.heartbeat_timeout);
  if (heartbeats.next_look() > now_) return;

  const auto judgement = heartbeats.judge(now_);
  if (judgement.delay_begins) {
    const bool says_how_long = !policy_.discovers_hosts && options_.orphan_timeout.count() != 0;
    warn(cat(
        heartbeats.delaying_everybody() ? "no host" : "no other machine", " has been heard for ",
        limit,
        " (--heartbeat-timeout): this machine may be cut off or overloaded, so none is given up "
        "yet; waiting for one of them",
        says_how_long
            ? cat(", at most ", seconds_text(options_.orphan_timeout - options_.heartbeat_timeout),
                  " more (--orphan-timeout)")
            : ""));
  }
  if (judgement.lost.empty()) return;

  const auto cause = [&](HostIndex host) {
    return cat(
        "no sign of life for ", seconds_text(judgement.silent_for),
        judgement.delayed ? " (--orphan-timeout)" : " (--heartbeat-timeout)",
        hosts_[host].local ? ": its agent hangs or was stopped" : ": the host is lost or cut off");
  };
  if (!policy_.discovers_hosts) {
    lose_silent_hosts(judgement.lost, cause);
    return;
  }
  for (const HostIndex host : judgement.lost) {
    host_failed(host, Step::reach, cause(host), kLauncherError);
    drop(host);
  }
}

void Job::on_host_deadlines() {
  std::vector<HostIndex> unstarted;
  for (const HostIndex index : std::set<HostIndex>(hosts_.present())) {
    JobHost& host = hosts_[index];
    if (host.deadline > now_ || hosts_.is_sought(index)) continue;
    host.deadline = kNever;

    switch (host.state) {
      case HostState::ready:
        if (!policy_.discovers_hosts) {
          unstarted.push_back(index);
          break;
        }
        [[fallthrough]];
      case HostState::starting:
        host_failed(
            index, host.step.value_or(Step::start_agent),
            cat("no answer within ", seconds_text(options_.start_timeout), " (--start-timeout)"),
            kLauncherError);
        drop(index);
        something_moved();
        break;
      case HostState::closing:
        warn(cat("the agent on host ", host.name, " did not leave within ",
                 seconds_text(options_.close_timeout), "; killing it"));
        drop(index);
        break;
      case HostState::dropping:
        warn(cat("the agent on host ", host.name, " is not gone ",
                 seconds_text(options_.drop_timeout), " after it was given up",
                 policy_.discovers_hosts ? "" : "; processes may be left there"));
        leave(index);
        break;
      case HostState::planned:
      case HostState::gone:
        break;
    }
  }

  if (!unstarted.empty()) fail_unstarted(unstarted);
}

}  // namespace hvd::driver
