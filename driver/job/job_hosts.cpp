// A host's way from being planned to being ready, all hosts' way to reaching each other, and the
// loss of one. The events about workers are in driver/job/job.cpp.
#include <algorithm>
#include <set>
#include <utility>

#include "base/text.h"
#include "driver/job/job.h"

namespace hvd::driver {
namespace {

constexpr int kNotExecutable = 126;  // as shells say it
constexpr int kNotFound = 127;

// That of the first, if the program is the matter everywhere.
int exit_code_of(const std::vector<FailedHost>& hosts) {
  for (const auto& host : hosts) {
    const int code = host.trouble.exit_code;
    if (code != kNotFound && code != kNotExecutable) return kOwnTrouble;
  }
  return hosts.empty() ? kOwnTrouble : hosts.front().trouble.exit_code;
}

}  // namespace

// ---- getting ready ----

void Job::on(const event::Begin& /*event*/) {
  if (state_ != JobState::planned) return;
  move(JobState::preparing);
  something_moved();
  for (HostIndex host = 0; host < hosts_.size(); ++host) {
    move(host, HostState::starting);
    actions_.emplace_back(action::StartAgent{host});
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
  if (!believed(event.host)) return;
  if (hosts_[event.host].state != HostState::starting) {
    broken(event.host, "it said twice that it was ready");
    return;
  }
  move(event.host, HostState::ready);
  hosts_[event.host].deadline = kNever;
  hear_capacity(event.host, event.capacity);
  if (heartbeats_.watch(event.host, now_)) say_heard(event.host);
  something_moved();
}

void Job::on(const event::HostFailed& event) {
  const HostState before = hosts_[event.host].state;
  if (before == HostState::planned || before == HostState::gone) return;
  if (before == HostState::ready && state_ == JobState::choosing) {
    exclude(event.host, event.trouble);
    return;
  }
  leave(event.host);
  if (before == HostState::starting) {
    something_moved();
    exclude(event.host, event.trouble);
  } else if (before == HostState::ready) {
    fail_host(event.host, event.trouble.message, event.trouble.step);
  }
}

// The host stays out, and with it the job: but the others are heard to the end, so that a person
// learns of all that is wrong at once.
void Job::exclude(HostIndex index, HostTrouble trouble) {
  JobHost& host = hosts_[index];
  if (host.trouble) return;
  say(cat("host ", host.name, ": ", name_of(trouble.step), ": ", trouble.message));
  host.trouble = std::move(trouble);
  if (++excluded_ == 1 && state_ == JobState::choosing) {
    state_deadline_ = now_ + options_.gather_time;
  }
}

void Job::on_preparation_deadline() {
  if (state_ == JobState::preparing) {
    // Every step has its own deadline, which is over before this one. What is left has not begun.
    for (HostIndex host = 0; host < hosts_.size(); ++host) {
      if (hosts_[host].state != HostState::starting) continue;
      exclude(host, {Step::start_agent,
                     cat("its turn did not come: nothing moved on any host for ",
                         seconds_text(options_.start_timeout), " (--start-timeout)"),
                     kOwnTrouble});
      drop(host);
    }
  } else if (excluded_ > 0) {
    fail_preparation();
  } else {
    JobFailure failure;
    failure.cause = cat("addresses by which all hosts reach each other were not found within ",
                        seconds_text(options_.start_timeout), " (--start-timeout)");
    fail(std::move(failure), kOwnTrouble);
  }
}

void Job::fail_preparation() {
  JobFailure failure;
  failure.hosts = excluded_hosts();
  const FailedHost& first = failure.hosts.front();
  failure.host = first.name;
  failure.cause = cat(name_of(first.trouble.step), ": ", first.trouble.message);
  const int exit_code = exit_code_of(failure.hosts);
  fail(std::move(failure), exit_code);
}

std::vector<FailedHost> Job::excluded_hosts() const {
  std::vector<FailedHost> excluded;
  for (const auto& host : hosts_) {
    if (host.trouble) excluded.push_back({host.name, *host.trouble});
  }
  return excluded;
}

void Job::on(const event::AddressesChosen& event) {
  if (state_ != JobState::choosing) return;
  if (excluded_ > 0) {
    fail_preparation();  // nobody else will be found out of reach
    return;
  }
  if (event.addresses.size() != seated_) {
    JobFailure failure;
    failure.cause = cat("addresses were chosen for ", event.addresses.size(), " of ", seated_,
                        " hosts (this is a bug of hvdrun)");
    fail(std::move(failure), kOwnTrouble);
    return;
  }
  for (auto& worker : workers_) worker.member.address = event.addresses[worker.host];
  move(JobState::starting);
  state_deadline_ = kNever;
  actions_.emplace_back(action::PublishWorld{world(), ""});
  for (HostIndex host = 0; host < seated_; ++host) {
    hosts_[host].deadline = now_ + options_.start_timeout;
  }
  for (auto& worker : workers_) {
    move(worker, WorkerState::launching);
    actions_.emplace_back(action::Launch{worker.host, worker.member});
  }
}

// ---- deadlines ----

void Job::on_host_deadlines() {
  std::vector<int> unstarted;
  HostIndex first_missing = hosts_.size();
  for (HostIndex index = 0; index < hosts_.size(); ++index) {
    JobHost& host = hosts_[index];
    if (host.deadline > now_) continue;
    switch (host.state) {
      case HostState::starting:
        exclude(index, {*host.step,
                        cat("no answer within ", seconds_text(options_.start_timeout),
                            " (--start-timeout)"),
                        kOwnTrouble});
        drop(index);
        something_moved();
        break;
      case HostState::ready:
        host.deadline = kNever;
        for (const int rank : ranks_of(index, true)) unstarted.push_back(rank);
        first_missing = std::min(first_missing, index);
        break;
      case HostState::closing:
        warn(cat("the agent on host ", host.name, " did not leave within ",
                 seconds_text(options_.close_timeout), "; killing it"));
        drop(index);
        break;
      case HostState::dropping:
        warn(cat("the agent on host ", host.name, " is not gone ",
                 seconds_text(options_.drop_timeout),
                 " after it was given up; processes may be left there"));
        leave(index);
        break;
      case HostState::planned:
      case HostState::gone:
        break;
    }
  }
  if (first_missing == hosts_.size()) return;
  fail_host(first_missing,
            cat(unstarted.size() == 1 ? "rank " : "ranks ", range_text(unstarted),
                unstarted.size() == 1 ? " was" : " were", " not started within ",
                seconds_text(options_.start_timeout), " (--start-timeout)"),
            Step::start_agent);
}

// ---- loss ----

void Job::on(const event::AgentGone& event) {
  const HostState before = hosts_[event.host].state;
  if (before == HostState::planned || before == HostState::gone) return;
  leave(event.host);
  if (before == HostState::starting) {
    something_moved();
    exclude(event.host, {Step::start_agent,
                         cat("its agent ended before it was ready: it ", event.how), kOwnTrouble});
  } else if (before == HostState::ready) {
    fail_host(event.host, cat("its agent went away: it ", event.how), Step::start_agent);
  }
}

void Job::on(const event::AgentBroken& event) {
  if (believed(event.host)) broken(event.host, event.how);
}

void Job::on(const event::Heard& event) {
  if (heartbeats_.hear(event.host, now_)) say_heard(event.host);
}

void Job::say_heard(HostIndex host) {
  warn(cat("host ", hosts_[host].name, " is heard; the others get another ",
           seconds_text(options_.heartbeat_timeout)));
}

void Job::on(const event::Unserved& event) { heartbeats_.excuse(event.host, now_); }

void Job::on_silence() {
  if (const auto held_up = heartbeats_.look(now_)) {
    say(cat("hvdrun was held up for ",
            seconds_text(std::chrono::ceil<std::chrono::milliseconds>(*held_up)),
            ": hosts that were not heard meanwhile get another ",
            seconds_text(options_.heartbeat_timeout)));
  }
  if (heartbeats_.next_look() > now_) return;
  const auto judgement = heartbeats_.judge(now_);
  const std::string limit = seconds_text(options_.heartbeat_timeout);
  if (judgement.delay_begins) {
    warn(cat(
        heartbeats_.delaying_everybody() ? "no host" : "no other machine", " has been heard for ",
        limit,
        " (--heartbeat-timeout): this machine may be cut off or overloaded, so none is "
        "given up yet; waiting for one of them",
        options_.orphan_timeout.count() == 0
            ? ""
            : cat(", at most ", seconds_text(options_.orphan_timeout - options_.heartbeat_timeout),
                  " more (--orphan-timeout)")));
  }
  if (judgement.lost.empty()) return;
  const std::set<std::string> local(options_.local_hosts.begin(), options_.local_hosts.end());
  const auto cause = [&](HostIndex host) {
    return cat("no sign of life for ", seconds_text(judgement.silent_for),
               judgement.delayed ? " (--orphan-timeout)" : " (--heartbeat-timeout)",
               local.count(hosts_[host].name) != 0 ? ": its agent hangs or was stopped"
                                                   : ": the host is lost or cut off");
  };
  std::vector<std::string> others;
  for (const HostIndex host : judgement.lost) {
    drop(host);
    // Nobody waits for what cannot be reached: its agent freezes and kills by itself.
    lose_workers(host);
    if (preparing()) exclude(host, {Step::reach, cause(host), kOwnTrouble});
    if (host != judgement.lost.front()) others.push_back(hosts_[host].name);
  }
  if (preparing()) return;
  std::string text = cause(judgement.lost.front());
  if (!others.empty()) text += cat("; the same holds for ", names_text(others));
  if (stop_has_begun()) {
    warn(cat("host ", hosts_[judgement.lost.front()].name, ": ", text));
  } else {
    fail_host(judgement.lost.front(), std::move(text), Step::reach);
  }
}

}  // namespace hvd::driver
