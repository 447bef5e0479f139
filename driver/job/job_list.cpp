// Hosts that are a list: all of them are made ready together, get the ranks of the only world, and
// none of them may fail.
#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/machine/child_process.h"
#include "base/text.h"
#include "driver/job/job.h"

namespace hvd::driver {
namespace {

constexpr int kNotExecutable = 126;  // as shells say it
constexpr int kNotFound = 127;
constexpr std::size_t kMaxErrorsInReason = 3;

// That of the first, if the program is the matter everywhere.
int exit_code_of(const std::vector<FailedHost>& hosts) {
  for (const auto& host : hosts) {
    const int code = host.error.exit_code;
    if (code != kNotFound && code != kNotExecutable) return kLauncherError;
  }
  return hosts.empty() ? kLauncherError : hosts.front().error.exit_code;
}

// The step that a host has to do, or that is to be done with it.
std::string_view to_be_done(Step step) {
  switch (step) {
    case Step::resolve:
      return "to be resolved";
    case Step::connect:
      return "to be connected";
    case Step::host_key:
      return "to show the right host key";
    case Step::authenticate:
      return "to authenticate";
    case Step::start_agent:
      return "to start the agent";
    case Step::copy_agent:
      return "to have the agent copied there";
    case Step::change_directory:
      return "to change the directory";
    case Step::find_program:
      return "to find the program";
    case Step::reach:
      return "to reach the others";
    case Step::run_workers:
      break;
  }
  return "to be ready";
}

}  // namespace

// ---- hosts, members and ranks ----

void Job::list_hosts(const std::vector<std::string>& names) {
  const auto& local = options_.local_hosts;
  for (const auto& name : names) {
    hosts_.add(name, std::find(local.begin(), local.end(), name) != local.end());
  }
  list_.seated = names.size();
  worlds_.begin_first_generation();
}

void Job::seat(std::vector<WorldMember> members) {
  HostIndex host = 0;
  for (auto& member : members) {
    if (hosts_[host].name != member.host) ++host;
    JobWorker worker;
    worker.member = member;
    worker.host = host;
    const std::size_t index = workers_.add(std::move(worker));
    workers_.move(index, MemberStatus::member);

    member.incarnation = workers_[index].member.incarnation;
    hosts_[host].workers.push_back(index);
    ++hosts_[host].live;
  }
  list_.seated = host + 1;
  worlds_.seat(std::move(members));
}

bool Job::plan_members() {
  if (!list_.request) return true;
  const PlanRequest request = *std::exchange(list_.request, std::nullopt);
  auto plan = plan_static(request.hosts, request.processes, request.oversubscribe);
  if (!plan.ok()) {
    fail_because(plan.status().message());
    return false;
  }
  if (!plan->oversubscription.empty()) warn(plan->oversubscription);
  seat(std::move(plan->members));
  actions_.emplace_back(action::PlanStands{});

  for (HostIndex host = list_.seated; host < hosts_.size(); ++host) {
    say(cat("host ", hosts_[host].name, " is not needed"));
    // Nobody minds how it leaves.
    hosts_.heartbeats().forget(host);
    shut_down(host);
  }
  return true;
}

// ---- getting ready ----

void Job::something_moved() {
  if (is_preparing_list()) deadlines_.state = now_ + options_.start_timeout;
}

// The others are heard to the end, so that a person learns of all that is wrong at once.
void Job::exclude(HostIndex index, HostError error) {
  JobHost& host = hosts_[index];
  if (host.error) return;
  say(cat("host ", host.name, ": ", name_of(error.step), ": ", error.message));
  host.error = std::move(error);
  if (++list_.excluded == 1 && state_ == JobState::choosing) {
    deadlines_.state = now_ + options_.gather_time;
  }
}

void Job::on_preparation_deadline() {
  if (state_ == JobState::preparing) {
    // Every step has its own deadline, which is over before this one. A host that is left has not
    // begun.
    for (HostIndex host = 0; host < hosts_.size(); ++host) {
      if (hosts_[host].state != HostState::starting) continue;
      exclude(host, {Step::start_agent,
                     cat("its turn did not come: nothing moved on any host for ",
                         seconds_text(options_.start_timeout), " (--start-timeout)"),
                     kLauncherError});
      drop(host);
    }
  } else if (list_.excluded > 0) {
    fail_preparation();
  } else {
    fail_because(cat("addresses by which all hosts reach each other were not found within ",
                     seconds_text(options_.start_timeout), " (--start-timeout)"));
  }
}

void Job::fail_preparation() {
  JobFailure failure;
  failure.hosts = excluded_hosts();
  const FailedHost& first = failure.hosts.front();
  failure.host = first.name;
  failure.cause = cat(name_of(first.error.step), ": ", first.error.message);
  const int exit_code = exit_code_of(failure.hosts);
  fail(std::move(failure), exit_code);
}

std::vector<FailedHost> Job::excluded_hosts() const {
  std::vector<FailedHost> excluded;
  for (const auto& host : hosts_.all()) {
    if (host.error) excluded.push_back({host.name, *host.error});
  }
  return excluded;
}

void Job::on(const event::AddressesChosen& event) {
  if (state_ != JobState::choosing) return;
  if (list_.excluded > 0) {
    fail_preparation();  // nobody else will be found out of reach
  } else if (event.addresses.size() != list_.seated) {
    fail_because(cat("addresses were chosen for ", event.addresses.size(), " of ", list_.seated,
                     " hosts (this is a bug of hvdrun)"));
  } else {
    launch_list(event.addresses);
  }
}

void Job::launch_list(const std::vector<std::string>& addresses) {
  for (std::size_t index = 0; index < workers_.size(); ++index) {
    JobWorker& worker = workers_[index];
    worker.member.address = addresses[worker.host];
    worlds_.set_address(index, worker.member.address);
  }
  move(JobState::starting);
  deadlines_.state = kNever;
  actions_.emplace_back(action::PublishWorld{world(), ""});

  for (HostIndex host = 0; host < list_.seated; ++host) {
    hosts_[host].deadline = now_ + options_.start_timeout;
  }
  for (std::size_t index = 0; index < workers_.size(); ++index) {
    workers_.move(index, WorkerState::launching);
    actions_.emplace_back(action::Launch{workers_[index].host, workers_[index].member});
  }
}

// ---- loss ----

void Job::listed_host_failed(HostIndex host, Step step, const std::string& message, int exit_code) {
  if (is_preparing_list()) {
    exclude(host, {step, message, exit_code});
    return;
  }
  JobFailure failure;
  failure.host = hosts_[host].name;
  failure.cause = message;
  fail(std::move(failure), exit_code);
}

void Job::lose_silent_hosts(const std::vector<HostIndex>& lost,
                            const std::function<std::string(HostIndex)>& cause) {
  std::vector<std::string> others;
  for (const HostIndex host : lost) {
    drop(host);
    // Nobody waits for what cannot be reached: its agent freezes and kills by itself.
    lose_workers(host, "was lost with its host");
    if (is_preparing_list()) exclude(host, {Step::reach, cause(host), kLauncherError});
    if (host != lost.front()) others.push_back(hosts_[host].name);
  }
  if (is_preparing_list()) return;

  std::string text = cause(lost.front());
  if (!others.empty()) text += cat("; the same holds for ", names_text(others));
  if (stop_has_begun()) {
    warn(cat("host ", hosts_[lost.front()].name, ": ", text));
  } else {
    listed_host_failed(lost.front(), Step::reach, text, kLauncherError);
  }
}

// The time for all workers of some hosts to run is over.
void Job::fail_unstarted(const std::vector<HostIndex>& hosts) {
  std::vector<int> unstarted;
  for (const HostIndex host : hosts) {
    hosts_[host].deadline = kNever;
    for (const int rank : ranks_of(host, true)) unstarted.push_back(rank);
  }
  listed_host_failed(hosts.front(), Step::start_agent,
                     cat(unstarted.size() == 1 ? "rank " : "ranks ", range_text(unstarted),
                         unstarted.size() == 1 ? " was" : " were", " not started within ",
                         seconds_text(options_.start_timeout), " (--start-timeout)"),
                     kLauncherError);
}

void Job::worker_is_started(HostIndex index) {
  if (policy_.discovers_hosts) return;
  JobHost& host = hosts_[index];
  if (host.state == HostState::ready && ranks_of(index, true).empty()) host.deadline = kNever;
}

// Workers that join would wait for ever for a worker that ended well and never joined.
void Job::check_completeness() {
  if (!joined_.anybody || !joined_.first_exited_before_init) return;
  fail_with(workers_[*joined_.first_exited_before_init],
            cat("exited with 0 without calling hvd::init, which rank ", joined_.first_rank,
                " has called: the world can never be complete"),
            kLauncherError);
}

void Job::settle_list() {
  const bool all_answered = hosts_.count(HostState::starting) == 0;
  if (state_ == JobState::preparing && all_answered) {
    if (list_.excluded > 0) {
      fail_preparation();
    } else if (plan_members()) {
      move(JobState::choosing);
      deadlines_.state = now_ + options_.start_timeout;
      actions_.emplace_back(action::ChooseAddresses{});
    }
  }
  if (state_ == JobState::choosing && list_.excluded == list_.seated) fail_preparation();
  if (state_ == JobState::starting && workers_.unstarted() == 0) {
    move(JobState::running);
    say(workers_.size() == 1 ? "the worker runs" : cat("all ", workers_.size(), " workers run"));
  }
  if (state_ == JobState::running && workers_.live().empty()) move(JobState::closing);
}

// ---- words ----

std::string Job::interrupt_text() const {
  std::string text = cat("interrupted by ", signal_text(outcome_.interrupt));
  const auto excluded = excluded_hosts();
  if (excluded.empty()) return text;

  text += excluded.size() == 1 ? "; one host had failed: "
                               : cat("; ", excluded.size(), " hosts had failed: ");
  std::vector<std::string> each;
  for (const auto& host : excluded) {
    if (each.size() == kMaxErrorsInReason) break;
    each.push_back(cat(host.name, " (", name_of(host.error.step), ": ", host.error.message, ")"));
  }
  text += join(each, ", ");
  if (each.size() < excluded.size()) text += cat(" and ", excluded.size() - each.size(), " more");
  return text;
}

std::vector<int> Job::ranks_of(HostIndex host, bool unstarted_only) const {
  std::vector<int> ranks;
  for (const std::size_t index : hosts_[host].workers) {
    const JobWorker& worker = workers_[index];
    const bool counts = unstarted_only ? is_unstarted(worker.state) : !has_ended(worker.state);
    if (counts) ranks.push_back(worker.member.rank);
  }
  return ranks;
}

// "h3 to authenticate (12 s left), h4 and h5 to be connected (8 s left) (12 of 50 hosts are ready)"
std::string Job::list_text(TimePoint now) const {
  struct HostGroup {
    std::vector<std::string> names;
    TimePoint deadline = kNever;
  };
  std::map<Step, HostGroup> groups;
  std::vector<std::string> without_turn;
  std::size_t ready = 0;
  for (const auto& host : hosts_.all()) {
    if (host.state == HostState::ready && !host.error) ++ready;
    if (host.state != HostState::starting) continue;
    if (!host.step) {
      without_turn.push_back(host.name);
      continue;
    }
    HostGroup& group = groups[*host.step];
    group.names.push_back(host.name);
    group.deadline = std::min(group.deadline, host.deadline);
  }

  std::vector<std::string> parts;
  if (state_ == JobState::choosing) {
    parts.push_back(
        cat("addresses by which all hosts reach each other", left_text(deadlines_.state, now)));
  }
  // The hosts that are nearest to being ready stand first.
  for (auto group = groups.rbegin(); group != groups.rend(); ++group) {
    parts.push_back(cat(names_text(group->second.names), " ", to_be_done(group->first),
                        left_text(group->second.deadline, now)));
  }
  if (!without_turn.empty()) {
    parts.push_back(cat(names_text(without_turn), " to have ",
                        without_turn.size() == 1 ? "its" : "their", " turn",
                        left_text(deadlines_.state, now)));
  }

  std::string text = join(parts, ", ");
  if (list_.seated == 1) return text;
  text +=
      cat(" (", ready, " of ", list_.seated, ready == 1 ? " hosts is ready" : " hosts are ready");
  if (list_.excluded > 0)
    text += cat(", ", list_.excluded, list_.excluded == 1 ? " has failed" : " have failed");
  return text + ")";
}

}  // namespace hvd::driver
