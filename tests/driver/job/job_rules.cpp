#include "tests/driver/job/job_rules.h"

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "base/text.h"

namespace hvd::driver {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSlack{1};
constexpr std::size_t kMaxWords = 1'000;

}  // namespace

JobRules::JobRules(const Job& job, const JobOptions& options, std::vector<bool> local)
    : job_(job),
      options_(options),
      local_(std::move(local)),
      hold_ups_(options.pace),
      hosts_(job.hosts().size()),
      workers_(job.workers().size()) {}

void JobRules::before(const Event& event, TimePoint now) {
  if (finish_) wrong("an event after the end");
  hold_ups_.look(now);
  now_ = hold_ups_.own();
  before_ = job_.state();
  for (HostIndex host = 0; host < hosts_.size(); ++host) {
    hosts_[host].before = job_.hosts()[host].state;
  }
  if (hold_ups_.held_up_for() > options_.heartbeat_timeout / 3) held_up_ = now_;
  answers_a_tick_ = std::holds_alternative<event::Tick>(event);
  dropped_.clear();
  verdict_ = other_drop_ = false;
  std::visit([this](const auto& value) { note(value); }, event);
}

// ---- what a reader of the rules expects of the first failure ----

void JobRules::note_failure(int exit_code) {
  if (before_ < JobState::stopping && !expected_code_) expected_code_ = exit_code;
}

void JobRules::note_host_failure(HostIndex host, int exit_code) {
  if (hosts_[host].let_go) return;
  if (before_ == JobState::preparing || before_ == JobState::choosing) {
    preparation_failures_.emplace(host, exit_code);
  } else if (hosts_[host].before < HostState::closing) {
    note_failure(exit_code);
  }
}

void JobRules::note(const event::StopRequested& event) { note_failure(128 + event.signal_number); }

void JobRules::note(const event::Heard& event) {
  if (local_[event.host] && silence(event.host) >= options_.heartbeat_timeout / 2) {
    local_return_ = now_;
  }
  hosts_[event.host].heard = now_;
}

void JobRules::note(const event::Unserved& event) { hosts_[event.host].unserved = now_; }

void JobRules::note(const event::HostFailed& event) {
  note_host_failure(event.host, event.error.exit_code);
}

void JobRules::note(const event::AgentGone& event) {
  note_host_failure(event.host, 1);
  parting_ = now_;
  for (const std::size_t worker : job_.hosts()[event.host].workers) workers_[worker].ended = true;
}

void JobRules::note(const event::LaunchFailed& event) {
  if (hosts_[event.host].before != HostState::ready) return;
  workers_[job_.index_of(event.incarnation)].ended = true;
  note_failure(event.error_number == ENOENT ? 127 : 126);
}

void JobRules::note(const event::Initialised& event) {
  if (hosts_[event.host].before != HostState::ready) return;
  WorkerFacts& worker = workers_[job_.index_of(event.incarnation)];
  worker.initialised = true;
  worker.done = false;
  somebody_has_joined_ = true;
  if (somebody_is_absent_) note_failure(1);
}

void JobRules::note(const event::Done& event) {
  workers_[job_.index_of(event.incarnation)].done = true;
}

void JobRules::note(const event::Exited& event) {
  const std::size_t index = job_.index_of(event.incarnation);
  if (index == workers_.size()) {  // a lie
    note_host_failure(event.host, 1);
    return;
  }
  if (hosts_[event.host].before != HostState::ready) return;
  WorkerFacts& worker = workers_[index];
  worker.ended = true;
  if (event.signal_number != 0) {
    note_failure(128 + event.signal_number);
  } else if (event.exit_code != 0) {
    note_failure(event.exit_code);
  } else if (worker.initialised && !worker.done) {
    note_failure(1);
  } else if (!worker.initialised) {
    somebody_is_absent_ = true;
    if (somebody_has_joined_) note_failure(1);
  }
}

// ---- what is decided ----

void JobRules::answered(const Action& action) {
  if (finish_) wrong("something follows after finish");
  if (answers_a_tick_ && hold_ups_.may_lie_unread() && !is_said_of_a_hold_up(action)) {
    wrong("judged by time before what was said during a hold-up was read");
  }
  std::visit([this](const auto& value) { check(value); }, action);
}

void JobRules::check(const action::PublishWorld& action) {
  if (published_++ != 0) wrong("the world was published twice");
  std::string previous_host;
  std::set<std::string> hosts;
  std::set<std::string> identities;
  std::set<Incarnation> incarnations;
  for (std::size_t rank = 0; rank < action.world.members.size(); ++rank) {
    const auto& member = action.world.members[rank];
    if (member.rank != static_cast<int>(rank)) wrong("ranks are not dense");
    if (!identities.insert(member.worker()).second) wrong("two workers in one slot");
    if (member.incarnation == 0 || !incarnations.insert(member.incarnation).second) {
      wrong("two workers with one incarnation");
    }
    if (member.host != previous_host && !hosts.insert(member.host).second) {
      wrong("ranks are not host by host");
    }
    previous_host = member.host;
  }
}

void JobRules::check(const action::StartAgent& action) {
  if (std::exchange(hosts_[action.host].started, true)) wrong("an agent was started twice");
}

void JobRules::check(const action::PlanStands& /*action*/) {
  if (!workers_.empty()) wrong("there was a plan already");
  workers_.resize(job_.workers().size());
  if (workers_.empty()) wrong("a plan without workers");
  bool others = false;
  for (HostIndex host = 0; host < hosts_.size(); ++host) {
    if (hosts_[host].before < HostState::ready && job_.hosts()[host].state < HostState::ready) {
      wrong("there is a plan before all hosts have answered");
    }
    if (others && !job_.hosts()[host].workers.empty()) wrong("a host was passed over");
    others = job_.hosts()[host].workers.empty();
  }
}

void JobRules::check(const action::ChooseAddresses& /*action*/) {
  if (std::exchange(choosing_, true)) wrong("addresses are chosen twice");
  for (const auto& host : job_.hosts()) {
    if (host.workers.empty()) continue;
    if (host.state != HostState::ready) wrong("addresses are chosen before all hosts are ready");
  }
}

void JobRules::check(const action::Launch& action) {
  if (published_ == 0) wrong("a worker was launched before the world was published");
  if (addresses_.empty() || action.member.address != addresses_[action.host]) {
    wrong("a worker was launched without the address that was chosen for it");
  }
  for (const auto& host : job_.hosts()) {
    if (host.workers.empty()) continue;
    if (host.state != HostState::ready) wrong("a worker was launched before all hosts were ready");
  }
  WorkerFacts& worker = workers_[job_.index_of(action.member.incarnation)];
  if (std::exchange(worker.launched, true)) wrong("a worker was launched twice");
}

void JobRules::check(const action::ShutDownAgent& action) {
  for (const std::size_t index : job_.hosts()[action.host].workers) {
    if (workers_[index].launched && !workers_[index].ended) {
      wrong("an agent was shut down before its workers had ended");
    }
  }
  if (job_.hosts()[action.host].workers.empty() && before_ == JobState::preparing &&
      !workers_.empty()) {
    hosts_[action.host].let_go = true;
    parting_ = now_;
  }
}

void JobRules::check(const action::Say& action) {
  const auto says = [&](const char* text) { return action.text.find(text) != std::string::npos; };
  if (action.text.empty()) wrong("said nothing");
  if (says("no sign of life for")) verdict_ = true;
  if (says("did not leave within") || says("still there")) other_drop_ = true;
  if (says(" is heard; ")) delay_end_ = now_;
}

// ---- silence ----

bool JobRules::was_watched(HostIndex host) const {
  return options_.heartbeat_timeout.count() != 0 && !hosts_[host].let_go &&
         (hosts_[host].before == HostState::ready || hosts_[host].before == HostState::closing);
}

// Held against a host: not before a hold-up of the driver.
Duration JobRules::silence(HostIndex host) const {
  return now_ - std::max(hosts_[host].heard, held_up_);
}

// Nor while the driver was behind with it.
Duration JobRules::silence_against(HostIndex host) const {
  return std::min(silence(host), now_ - hosts_[host].unserved);
}

// Another host was heard lately over the same route as the silent one, or there is no such route.
bool JobRules::somebody_vouches_for_the_network(HostIndex against) const {
  int all = 0;
  int machines = 0;
  bool one = false;
  bool machine = false;
  for (HostIndex host = 0; host < hosts_.size(); ++host) {
    if (!was_watched(host)) continue;
    const bool heard = now_ - std::max({hosts_[host].heard, held_up_, delay_end_}) <
                       options_.heartbeat_timeout / 2;
    ++all;
    one = one || heard;
    if (local_[host]) continue;
    ++machines;
    machine = machine || heard;
  }
  if (!local_[against] && machines > 1) return machine;
  return all < 2 || one;
}

void JobRules::check_verdicts() {
  if (!verdict_ || other_drop_) return;
  for (const HostIndex host : dropped_) {
    if (!was_watched(host)) continue;
    const std::string name = job_.hosts()[host].name;
    if (silence_against(host) < options_.heartbeat_timeout) {
      wrong(cat("a hasty verdict on ", name));
    } else if (!somebody_vouches_for_the_network(host) &&
               (options_.orphan_timeout.count() == 0 ||
                silence_against(host) < options_.orphan_timeout)) {
      wrong(cat("a verdict on ", name, ", although all are silent"));
    }
    if (before_ >= JobState::starting && job_.hosts()[host].live != 0) {
      wrong(cat("workers on ", name, " are waited for, which is lost"));
    }
    for (const std::size_t worker : job_.hosts()[host].workers) workers_[worker].ended = true;
    note_host_failure(host, 1);
  }
}

void JobRules::check_deadlines() {
  if (options_.heartbeat_timeout.count() == 0) return;
  const Duration slack = options_.heartbeat_timeout / 10 + kSlack;
  for (HostIndex host = 0; host < hosts_.size(); ++host) {
    const HostState state = job_.hosts()[host].state;
    if (!was_watched(host) || (state != HostState::ready && state != HostState::closing)) continue;
    TimePoint fresh = std::max({hosts_[host].heard, hosts_[host].unserved, held_up_, delay_end_});
    if (local_[host]) fresh = std::max(fresh, local_return_);
    const Duration since_delay = now_ - fresh;
    if (since_delay > options_.heartbeat_timeout + slack && now_ - parting_ > slack &&
        somebody_vouches_for_the_network(host)) {
      wrong(cat("no verdict on ", job_.hosts()[host].name, ", which is silent"));
    }
    if (options_.orphan_timeout.count() != 0 &&
        silence_against(host) >
            std::max(options_.heartbeat_timeout, options_.orphan_timeout) + slack) {
      wrong(cat("no verdict on ", job_.hosts()[host].name, ", even after the orphan timeout"));
    }
  }
}

// ---- always ----

void JobRules::after(const Event& event, TimePoint now, bool in_detail) {
  const bool tick = std::holds_alternative<event::Tick>(event);
  check_verdicts();
  if (tick) check_deadlines();
  const bool was_preparing = before_ == JobState::preparing || before_ == JobState::choosing;
  if (was_preparing) {
    for (HostIndex host = 0; host < hosts_.size(); ++host) {
      if (!job_.hosts()[host].error || preparation_failures_.count(host) != 0) continue;
      if (!tick) wrong("a host is said to have failed, and nothing happened");
      preparation_failures_.emplace(host, 1);
    }
  }
  if (job_.state() >= JobState::stopping && before_ < JobState::stopping && !expected_code_ &&
      !(finish_ && finish_->exit_code == 0)) {
    if (was_preparing && !preparation_failures_.empty()) {
      expected_code_ = preparation_failures_.begin()->second;
      for (const auto& [host, code] : preparation_failures_) {
        if (code != 126 && code != 127) expected_code_ = 1;
      }
    } else if (tick) {
      expected_code_ = 1;  // only a deadline can have been over
    }
  }
  if (job_.state() < before_) wrong("the job went back");
  if (finished() != (job_.state() == JobState::finished)) wrong("finished and not finished");
  if (tick && job_.next_deadline() <= now && !finished()) {
    wrong("a deadline is over and nothing was done");
  }
  if (!in_detail) return;
  const std::string waits = job_.waiting_for(now);
  if (waits.empty() != finished()) {
    wrong(cat("waits for \"", waits, "\" while ", name_of(job_.state())));
  }
  if (waits.size() > kMaxWords) wrong("says too much of what it waits for");
  // Only a running program may take for ever.
  if (job_.next_deadline() == kNever && job_.state() != JobState::running && !finished()) {
    wrong(cat("no deadline while ", name_of(job_.state())));
  }
}

void JobRules::ended() {
  if (!wrong_.empty()) return;
  const int expected = expected_code_.value_or(0);
  if (finish_->exit_code != expected) {
    wrong(cat("exit code ", finish_->exit_code, " and not ", expected));
  }
  if (finish_->exit_code == 0) {
    for (const auto& worker : workers_) {
      if (!worker.ended || (worker.initialised && !worker.done) ||
          worker.initialised != workers_.front().initialised) {
        wrong("success, although a worker did not end well");
      }
    }
  }
  if (finish_->reason.empty()) wrong("no reason was given");
  if (finish_->exit_code != 0 && finish_->exit_code < 128 && !finish_->failure) {
    wrong("a failure without a name");
  }
  if (finish_->failure && finish_->failure->hosts.size() > preparation_failures_.size()) {
    wrong("hosts are said to have failed that did not");
  }
  if (published_ == 0 && finish_->failure &&
      finish_->failure->hosts.size() != preparation_failures_.size()) {
    wrong("a host that failed is not named");
  }
}

}  // namespace hvd::driver
