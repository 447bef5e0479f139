#include "tests/driver/job/simulated_job.h"

#include <algorithm>
#include <cerrno>
#include <gtest/gtest.h>
#include <utility>

#include "base/text.h"
#include "driver/job/plan.h"

namespace hvd::driver {
namespace {

using std::chrono::milliseconds;

constexpr Incarnation kNobody = 1'000'000;  // that no worker has
constexpr int kSteps = 1'000'000;
constexpr int kStepsForEachHost = 10'000;  // ten heartbeats a second alone
// Of what changes nothing, one step in so many is looked at in detail.
constexpr int kDetail = 64;
constexpr std::uint64_t kWithoutJournal = 16;  // of so many runs, one has a journal

bool is_routine(const Event& event) {
  return std::holds_alternative<event::Heard>(event) ||
         std::holds_alternative<event::Unserved>(event) ||
         std::holds_alternative<event::Tick>(event);
}

}  // namespace

SimulatedJob::SimulatedJob(std::uint64_t seed, const Weather& weather, int max_hosts, int max_slots)
    : dice_(seed), weather_(weather) {
  PlanRequest request;
  const int count = 1 + dice_.below(max_hosts);
  const bool some_are_open = dice_.one_in(2);
  for (int host = 0; host < count; ++host) {
    slots_.push_back(1 + dice_.below(max_slots));
    const bool open = some_are_open && dice_.one_in(2);
    request.hosts.push_back({cat("h", host), open ? 0 : slots_.back()});
  }
  options_.job_id = "simulated";
  options_.grace = dice_.up_to(6'000);
  if (!dice_.one_in(5)) options_.heartbeat_timeout = milliseconds(dice_.one_in(4) ? 300 : 3'000);
  options_.pace = options_.heartbeat_timeout / 10;
  options_.orphan_timeout = milliseconds(dice_.one_in(10) ? 0 : 2'000 + dice_.below(30'000));
  for (int host = 0; host < count; ++host) {
    local_.push_back(dice_.one_in(4));
    if (local_.back())
      options_.local_hosts.push_back(request.hosts[static_cast<std::size_t>(host)].name);
  }
  request.processes = 1 + dice_.below(2 * count * max_slots);
  request.hosts = hosts_to_ask(request.hosts, request.processes);
  JobStart start{options_, {}};
  if (slots_are_known(request.hosts)) {
    const auto plan = plan_static(request.hosts, request.processes, true);
    EXPECT_TRUE(plan.ok()) << plan.status().to_string();
    start.workers = plan->members;
  } else {
    start.workers = request;
  }
  job_ = start.make();
  if (seed % kWithoutJournal == 0) {
    journal_.emplace(start);
    metrics_.emplace(start);
  }
  local_.resize(job_->hosts().size());  // with few processes not every host is used
  rules_ = std::make_unique<JobRules>(*job_, options_, local_);
  agents_.resize(job_->hosts().size());
  workers_.resize(job_->workers().size());
  busy_ = dice_.one_in(weather_.busy);
  some_join_ = dice_.one_in(weather_.some_join);
  all_join_ = dice_.one_in(2);
}

std::string SimulatedJob::run() {
  plan_interrupts();
  plan_requests();
  plan_network_faults();
  step(event::Begin{});
  for (int steps = 0; rules_->wrong().empty() && !rules_->finished(); ++steps) {
    const TimePoint deadline = job_->next_deadline();
    if (steps > kSteps + kStepsForEachHost * static_cast<int>(agents_.size())) {
      return cat("does not come to an end; after ", time_.passed().count(), " ms it waits for ",
                 job_->waiting_for(time_.now()), ", with its next deadline in ",
                 std::chrono::duration_cast<milliseconds>(deadline - time_.now()).count(), " ms");
    }
    if (!time_.advance(deadline, [this] { tick(); })) {
      return cat("nothing will ever happen again; waits for ", job_->waiting_for(time_.now()));
    }
  }
  if (rules_->wrong().empty()) {
    if (!job_->step(event::Tick{}, time_.now()).empty() ||
        !job_->step(event::StopRequested{2}, time_.now()).empty()) {
      rules_->wrong("something follows after the end");
    }
    rules_->ended();
    if (journal_ && !journal_->wrong().empty()) rules_->wrong(journal_->wrong());
    if (metrics_) metrics_->check(*job_, time_.now());
    if (metrics_ && !metrics_->wrong().empty()) rules_->wrong(metrics_->wrong());
  }
  return rules_->wrong();
}

void SimulatedJob::step(const Event& event) {
  rules_->before(event, time_.now());
  const auto actions = job_->step(event, time_.now());
  if (journal_) journal_->step(event, actions, *job_, time_.now());
  if (metrics_) metrics_->step(event, actions, *job_, time_.now());
  if (!actions.empty() || !is_routine(event)) {
    story_ += cat(time_.passed().count(), " ms: event ", event.index(), "\n");
  }
  for (const auto& action : actions) {
    story_ += "    " + to_text(action, job_->host_names()) + "\n";
    rules_->answered(action);
    std::visit([this](const auto& value) { perform(value); }, action);
  }
  rules_->after(event, time_.now(),
                !actions.empty() || !is_routine(event) || dice_.one_in(kDetail));
}

// ---- time and wires ----

void SimulatedJob::schedule(milliseconds after, std::function<void()> work) {
  time_.after(after, std::move(work));
}

void SimulatedJob::report(HostIndex host, milliseconds after, Event event) {
  auto& agent = agents_[host];
  const TimePoint at = std::max(agent.busy_until, time_.now() + after);
  agent.busy_until = at;
  time_.at(at, [this, host, event = std::move(event)] { happen(host, event); });
}

void SimulatedJob::happen(HostIndex host, const Event& event) {
  Agent& agent = agents_[host];
  if (agent.gone || !is_possible(event)) return;
  if (agent.cut_off_since == kNever) {
    if (std::holds_alternative<event::AgentGone>(event)) agent.gone = true;
    step(event);
  } else {
    agent.outbox.push_back(event);
  }
}

void SimulatedJob::reach(HostIndex host, std::function<void()> work) {
  if (agents_[host].cut_off_since == kNever) {
    work();
  } else {
    agents_[host].inbox.push_back(std::move(work));
  }
}

void SimulatedJob::cut_off(HostIndex host, milliseconds after, milliseconds duration) {
  schedule(after, [this, host, duration] {
    Agent& agent = agents_[host];
    if (agent.cut_off_since == kNever) agent.cut_off_since = time_.now();
    agent.cut_off_until = std::max(agent.cut_off_until, time_.now() + duration);
    schedule(duration, [this, host] { heal(host); });
  });
}

void SimulatedJob::heal(HostIndex host) {
  Agent& agent = agents_[host];
  if (agent.cut_off_since == kNever || time_.now() < agent.cut_off_until) return;
  const Duration silent = time_.now() - std::exchange(agent.cut_off_since, kNever);
  agent.well_since = time_.now();
  const auto outbox = std::exchange(agent.outbox, {});
  const auto inbox = std::exchange(agent.inbox, {});
  if (agent.ready && options_.orphan_timeout.count() != 0 && silent > options_.orphan_timeout) {
    happen(host, event::AgentGone{host, "closed its link"});
    return;
  }
  for (const auto& event : outbox) {
    if (agent.gone || rules_->finished()) return;
    if (std::holds_alternative<event::AgentGone>(event)) agent.gone = true;
    step(event);
  }
  for (const auto& work : inbox) work();
}

void SimulatedJob::beat(HostIndex host) {
  const int pace = static_cast<int>(options_.heartbeat_timeout.count() / 10);
  schedule(milliseconds(pace) + dice_.up_to(pace / 2), [this, host] {
    if (agents_[host].gone) return;
    if (agents_[host].cut_off_since != kNever) return beat(host);
    if (!busy_) {
      step(event::Heard{host});
      return beat(host);
    }
    // It has arrived, and is heard when the driver comes round to it.
    ++agents_[host].unread;
    schedule(dice_.up_to(4 * static_cast<int>(options_.heartbeat_timeout.count())), [this, host] {
      --agents_[host].unread;
      if (!agents_[host].gone) step(event::Heard{host});
    });
    beat(host);
  });
}

void SimulatedJob::tick() {
  for (HostIndex host = 0; host < agents_.size(); ++host) {
    if (agents_[host].unread > 0 && !agents_[host].gone) step(event::Unserved{host});
  }
  step(event::Tick{});
  check_that_no_healthy_host_is_lost();
}

// A host that has been well for long enough to have been heard is never given up as silent, however
// busy the driver was.
void SimulatedJob::check_that_no_healthy_host_is_lost() {
  const Duration beat = options_.heartbeat_timeout / 4;
  for (HostIndex host = 0; host < agents_.size(); ++host) {
    const Agent& agent = agents_[host];
    if (agent.gone || agent.cut_off_since != kNever || !rules_->lost_by_silence(host)) continue;
    if (time_.now() - agent.well_since < options_.heartbeat_timeout + beat) continue;
    rules_->wrong(cat("healthy host ", host, " was given up as silent"));
  }
}

void SimulatedJob::plan_interrupts() {
  if (!dice_.one_in(weather_.interrupts)) return;
  milliseconds at = dice_.up_to(40'000);
  for (int count = 1 + dice_.below(3); count > 0; --count) {
    schedule(at, [this, signal = dice_.one_in(2) ? 2 : 15] { step(event::StopRequested{signal}); });
    at += dice_.up_to(4'000);
  }
}

void SimulatedJob::plan_requests() {
  if (!dice_.one_in(weather_.requests)) return;
  schedule(dice_.up_to(40'000), [this] {
    step(event::DrainRequested{job_->hosts().front().name});
    if (!rules_->finished()) step(event::ScaleRequested{1});
  });
}

void SimulatedJob::plan_network_faults() {
  // Some heal within the lease, some after it, some never.
  const auto some_time = [this] {
    const int timeout = static_cast<int>(options_.heartbeat_timeout.count()) + 1;
    switch (dice_.below(4)) {
      case 0:
        return dice_.up_to(timeout);
      case 1:
        return dice_.up_to(3 * timeout);
      case 2:
        return dice_.up_to(50'000);
      default:
        return milliseconds(100'000'000);
    }
  };
  for (HostIndex host = 0; host < agents_.size(); ++host) {
    if (dice_.one_in(weather_.silence)) cut_off(host, dice_.up_to(40'000), some_time());
  }
  if (dice_.one_in(weather_.blackout)) {
    const milliseconds at = dice_.up_to(40'000);
    const milliseconds duration = some_time();
    for (HostIndex host = 0; host < agents_.size(); ++host) {
      if (!local_[host] || dice_.one_in(3)) cut_off(host, at, duration + dice_.up_to(100));
    }
  }
  if (dice_.one_in(weather_.stalls)) {
    milliseconds at(0);
    for (int count = 1 + dice_.below(3); count > 0; --count) {
      at += dice_.up_to(20'000);
      schedule(at, [this] { time_.hold_up_until(time_.now() + dice_.up_to(10'000)); });
    }
  }
  if (weather_.silence != 0 || weather_.blackout != 0) {
    // Without heartbeats, or a limit of all silence, such a job may wait for ever.
    schedule(milliseconds(200'000), [this] { step(event::StopRequested{2}); });
  }
}

// An event that was planned may have become impossible since.
bool SimulatedJob::is_possible(const Event& event) {
  if (const auto* launched = std::get_if<event::Launched>(&event)) {
    Worker& one = worker(launched->incarnation);
    if (one.ended) return false;
    one.runs = true;
  } else if (const auto* failed = std::get_if<event::LaunchFailed>(&event)) {
    worker(failed->incarnation).ended = true;
  } else if (const auto* initialised = std::get_if<event::Initialised>(&event)) {
    return worker(initialised->incarnation).runs;
  } else if (const auto* done = std::get_if<event::Done>(&event)) {
    return worker(done->incarnation).runs;
  } else if (const auto* exited = std::get_if<event::Exited>(&event)) {
    if (exited->incarnation == kNobody) return true;  // a lie
    Worker& one = worker(exited->incarnation);
    one.ended = one.ended || one.runs;
    return std::exchange(one.runs, false);
  } else if (std::holds_alternative<event::AgentReady>(event)) {
    const HostIndex host = std::get<event::AgentReady>(event).host;
    agents_[host].ready = true;
    if (options_.heartbeat_timeout.count() != 0) beat(host);
  }
  return true;
}

// ---- what the driver and the hosts do ----

void SimulatedJob::perform(const action::PublishWorld& /*action*/) {}

void SimulatedJob::perform(const action::StartAgent& action) {
  const HostIndex host = action.host;
  agents_[host].deaf = dice_.one_in(weather_.agent_deaf);
  if (dice_.one_in(weather_.agent_dies)) {
    schedule(dice_.up_to(50'000), [this, host] { happen(host, event::AgentGone{host, "died"}); });
  }
  if (dice_.one_in(weather_.agent_lies)) {
    Event lie = event::Exited{host, kNobody, 0, 0, false};
    if (dice_.one_in(2)) lie = event::AgentBroken{host, "spoke rubbish"};
    schedule(dice_.up_to(50'000), [this, host, lie] { happen(host, lie); });
  }
  bring_agent(host);
}

void SimulatedJob::bring_agent(HostIndex host) {
  if (dice_.one_in(weather_.host_has_no_turn)) return;
  const bool fails = dice_.one_in(weather_.host_fails);
  const int last = static_cast<int>(Step::find_program);
  const int first = local_[host] ? static_cast<int>(Step::start_agent) : 0;
  const int stops_at = first + dice_.below(last - first + 1);
  const bool never_ready = dice_.one_in(weather_.agent_never_ready);
  report(host, local_[host] ? milliseconds(0) : dice_.up_to(2'000),
         event::HostProgress{host, static_cast<Step>(first)});
  for (int number = first; number <= last; ++number) {
    const auto step = static_cast<Step>(number);
    report(host, dice_.up_to(20), event::HostProgress{host, step});
    const milliseconds duration = dice_.up_to(dice_.one_in(100) ? 40'000 : 300);
    if (fails && number == stops_at) {
      HostError error{step, "it failed", 1};
      if (step == Step::find_program) error.exit_code = dice_.one_in(2) ? 127 : 126;
      agents_[host].busy_until = std::max(agents_[host].busy_until, time_.now()) + duration;
      report(host, milliseconds(0), event::HostFailed{host, error});
      return;
    }
    if (never_ready && number == stops_at) return;
    agents_[host].busy_until = std::max(agents_[host].busy_until, time_.now()) + duration;
  }
  const int slots = slots_[host];
  report(host, milliseconds(0), event::AgentReady{host, {dice_.one_in(2) ? slots : 0, slots}});
}

void SimulatedJob::perform(const action::ChooseAddresses& /*action*/) {
  if (dice_.one_in(weather_.no_addresses)) return;
  bool all = true;
  for (HostIndex host = 0; host < agents_.size(); ++host) {
    if (job_->hosts()[host].workers.empty()) break;
    if (!dice_.one_in(weather_.unreachable)) continue;
    all = false;
    schedule(dice_.up_to(90), [this, host] {
      if (!agents_[host].gone) {
        step(event::HostFailed{host, {Step::reach, "out of reach", 1}});
      }
    });
  }
  if (!all) return;
  schedule(dice_.up_to(dice_.one_in(40) ? 40'000 : 500), [this] {
    event::AddressesChosen chosen;
    for (HostIndex host = 0; host < agents_.size(); ++host) {
      if (job_->hosts()[host].workers.empty()) break;
      chosen.addresses.push_back(cat("fd00::", host));
    }
    step(chosen);
  });
}

void SimulatedJob::perform(const action::Launch& action) {
  reach(action.host, [this, host = action.host, incarnation = action.member.incarnation] {
    run_worker(host, incarnation);
  });
}

void SimulatedJob::run_worker(HostIndex host, Incarnation incarnation) {
  const milliseconds start = dice_.up_to(200);
  if (dice_.one_in(weather_.launch_fails)) {
    report(host, start,
           event::LaunchFailed{host, incarnation, dice_.one_in(2) ? ENOENT : EACCES, "no"});
    return;
  }
  report(host, start,
         event::Launched{host, incarnation, 1 + static_cast<int>(job_->index_of(incarnation))});
  worker(incarnation).ignores_stop = dice_.one_in(weather_.worker_ignores_stop);
  // From here on the agent's order only matters for one worker: times grow along the way.
  milliseconds at = std::chrono::ceil<milliseconds>(agents_[host].busy_until - time_.now());
  const auto then = [&](const Event& event) {
    schedule(at, [this, host, event] { happen(host, event); });
  };
  if (some_join_ ? dice_.one_in(2) : all_join_) {
    at += dice_.up_to(5'000);
    then(event::Initialised{host, incarnation});
    if (!dice_.one_in(weather_.worker_forgets_done)) {
      at += dice_.up_to(20'000);
      then(event::Done{host, incarnation});
    }
  }
  if (dice_.one_in(weather_.worker_hangs)) {
    // Something ends it, or the simulation would be right not to come to an end.
    schedule(milliseconds(100'000) + dice_.up_to(1'000), [this] { step(event::StopRequested{2}); });
    return;
  }
  at += dice_.up_to(20'000);
  event::Exited exited{host, incarnation, 0, 0, false};
  if (dice_.one_in(weather_.worker_fails)) {
    if (dice_.one_in(2)) {
      exited.signal_number = 1 + dice_.below(31);
    } else {
      exited.exit_code = 1 + dice_.below(255);
    }
  }
  then(exited);
}

void SimulatedJob::perform(const action::StopWorkers& action) {
  reach(action.host, [this, host = action.host, grace = action.grace] {
    if (agents_[host].deaf) return;
    for (const std::size_t index : job_->hosts()[host].workers) {
      const bool ignores = workers_[index].ignores_stop;
      const milliseconds at = ignores ? grace : std::min(grace, dice_.up_to(3'000));
      const event::Exited exited{host, job_->workers()[index].member.incarnation, 0,
                                 ignores ? 9 : 15, false};
      schedule(at + milliseconds(300), [this, host, exited] { happen(host, exited); });
    }
  });
}

void SimulatedJob::perform(const action::KillWorkers& action) {
  reach(action.host, [this, host = action.host] {
    if (agents_[host].deaf) return;
    for (const std::size_t index : job_->hosts()[host].workers) {
      const event::Exited exited{host, job_->workers()[index].member.incarnation, 0, 9, false};
      schedule(dice_.up_to(100), [this, host, exited] { happen(host, exited); });
    }
  });
}

void SimulatedJob::perform(const action::DescribeWorker& action) {
  reach(action.host, [this, host = action.host, incarnation = action.incarnation] {
    if (agents_[host].deaf) return;
    const event::Described described{host, incarnation, "it runs"};
    schedule(dice_.up_to(200), [this, host, described] { happen(host, described); });
  });
}

void SimulatedJob::perform(const action::ShutDownAgent& action) {
  reach(action.host, [this, host = action.host] {
    if (dice_.one_in(weather_.agent_stays)) return;
    schedule(dice_.up_to(50), [this, host] { happen(host, event::AgentGone{host, "left"}); });
  });
}

// The driver gives up its own end of the link: it needs nobody's answer for that.
void SimulatedJob::perform(const action::DropAgent& action) {
  if (dice_.one_in(weather_.agent_immortal)) return;
  const HostIndex host = action.host;
  schedule(dice_.up_to(50), [this, host] {
    if (std::exchange(agents_[host].gone, true)) return;
    if (!agents_[host].ready && dice_.one_in(2)) {
      step(event::HostFailed{host, {Step::connect, "given up", 1}});
    } else {
      step(event::AgentGone{host, "was killed"});
    }
  });
}

void SimulatedJob::perform(const action::Say& /*action*/) {}
void SimulatedJob::perform(const action::Answer& action) {
  if (action.accepted) rules_->wrong("a static job was drained or scaled");
}
void SimulatedJob::perform(const action::Finish& /*action*/) {}

}  // namespace hvd::driver
