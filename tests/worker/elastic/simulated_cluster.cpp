#include "tests/worker/elastic/simulated_cluster.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/text.h"

namespace hvd {

using driver::Event;
using driver::HostIndex;
using driver::Incarnation;
using driver::Step;
using std::chrono::milliseconds;
namespace action = driver::action;
namespace event = driver::event;

namespace {

constexpr int kSteps = 400'000;
constexpr int kDetail = 64;  // of what changes nothing, one step in so many is looked at in detail
constexpr std::uint64_t kWithoutJournal = 64;  // of so many runs, one has a journal
constexpr milliseconds kFaultsFor{2'500};
constexpr milliseconds kAfterTheEnd{15'000};

}  // namespace

SimulatedCluster::SimulatedCluster(std::uint64_t seed, const Climate& climate, int max_hosts,
                                   int max_slots, Flaw flaw)
    : dice_(seed),
      climate_(climate),
      flaw_(flaw),
      history_(1 + dice_.below(24), 1 + dice_.below(2), seed),
      workers_(*this, time_, dice_, climate.workers, history_, flaw) {
  const bool needs_two =
      climate.everybody_is_replaced != 0 || climate.broken == Climate::Broken::machine;
  const int least_hosts = needs_two ? 2 : 1;
  const int count = least_hosts + dice_.below(max_hosts + 1 - least_hosts);
  for (int index = 0; index < count; ++index) {
    Machine machine;
    machine.name = cat("h", index);
    machine.slots = 1 + dice_.below(max_slots);
    machine.open = dice_.one_in(3);
    machine.local = dice_.one_in(5);
    machine.found = climate.everybody_is_replaced == 0 || index % 2 == 0;
    machines_.push_back(std::move(machine));
  }
  options_.job_id = "simulated";
  options_.grace = dice_.up_to(300);
  options_.start_timeout = milliseconds(2'000);
  if (!dice_.one_in(4)) options_.heartbeat_timeout = milliseconds(dice_.one_in(2) ? 100 : 300);
  options_.orphan_timeout = milliseconds(900);
  options_.pace = milliseconds(options_.heartbeat_timeout.count() == 0 ? 20 : 10);
  options_.stop_margin = options_.kill_timeout = milliseconds(500);
  options_.close_timeout = milliseconds(500);
  options_.drop_timeout = milliseconds(3'000);  // more than any stall
  options_.elastic.elastic_timeout = milliseconds(20'000);
  options_.elastic.leave_grace = milliseconds(climate.leave_grace);
  options_.elastic.suspends_when_all_go = climate.suspends_when_all_go;
  options_.elastic.keeps_state_in_agents = climate.workers.agents_keep_state;
  options_.elastic.replaces_slow = climate.worker_is_slow != 0;
  options_.elastic.leave_gather = milliseconds(100);
  options_.elastic.join_gather = milliseconds(50);
  options_.elastic.grow_delay = milliseconds(200);
  options_.elastic.budget.restarts = dice_.below(4);
  options_.elastic.budget.policy =
      dice_.one_in(4) ? driver::FailurePolicy::host : driver::FailurePolicy::slot;
  options_.elastic.budget.shortest = milliseconds(100);
  options_.elastic.budget.longest = milliseconds(2'000);
  options_.elastic.jitter_seed = seed;
  break_something();
  choose_limits();
  driver::JobOptions of_the_job = options_;
  if (flaw == Flaw::forgets_to_stop_what_cannot_be_suspended) {
    of_the_job.elastic.leave_grace = std::chrono::hours(1);
  }
  const driver::JobStart start{of_the_job, {}};
  job_ = start.make();
  if (seed % kWithoutJournal == 0) journal_.emplace(start);
  rules_ = std::make_unique<driver::ElasticRules>(*job_, options_);
}

int SimulatedCluster::good_slots(const Machine& machine) {
  return machine.slots -
         static_cast<int>(std::count(machine.broken.begin(), machine.broken.end(), true));
}

void SimulatedCluster::break_something() {
  if (climate_.broken == Climate::Broken::nothing) return;
  // Else the good slots of the machine would go, too, and there may be no other.
  if (climate_.broken == Climate::Broken::slot) {
    options_.elastic.budget.policy = driver::FailurePolicy::slot;
  }
  Machine& machine =
      machines_[static_cast<std::size_t>(dice_.below(static_cast<int>(machines_.size())))];
  machine.open = false;  // so many slots, and no more
  if (climate_.broken == Climate::Broken::slot && machines_.size() == 1) ++machine.slots;
  machine.broken.resize(static_cast<std::size_t>(machine.slots));
  if (climate_.broken == Climate::Broken::machine) {
    machine.broken.assign(machine.broken.size(), true);
  } else {
    machine.broken[static_cast<std::size_t>(dice_.below(machine.slots))] = true;
  }
}

void SimulatedCluster::choose_limits() {
  int slots = 0;
  int of_the_others = 0;  // that replace the first
  for (const auto& machine : machines_) {
    (machine.found ? slots : of_the_others) += good_slots(machine);
  }
  // All can only be replaced if either half is enough.
  const int least = of_the_others == 0 ? slots : std::min(slots, of_the_others);
  if (dice_.one_in(2)) options_.elastic.limits.least = 1 + dice_.below(least);
  // No other worker would have the state if the only one broke.
  const bool may_be_small = climate_.broken == Climate::Broken::nothing || !climate_.breaks_late;
  if (may_be_small && dice_.one_in(3)) {
    options_.elastic.limits.most = options_.elastic.limits.least + dice_.below(slots);
  }
  if (dice_.one_in(3)) options_.elastic.limits.spares = dice_.below(3);
  if (dice_.one_in(3)) options_.elastic.processes = options_.elastic.limits.least;
}

std::string SimulatedCluster::run() {
  step(event::Begin{});
  schedule(dice_.up_to(100), [this] { find(); });
  plan_faults();
  plan_suspension();
  schedule(kFaultsFor, [this] { settle_down(); });
  for (int steps = 0; !is_over(); ++steps) {
    if (steps > kSteps) return "does not come to an end";
    const TimePoint deadline = job_->next_deadline();
    const TimePoint due = deadline == kNever ? kNever : std::max(deadline, held_up_until_);
    if (!time_.advance(driver_is_dead_ ? kNever : due, [this] {
          say_which_are_looked_for();
          step(event::Tick{});
        })) {
      return cat("nothing will ever happen again; waits for ", job_->waiting_for(time_.now()));
    }
  }
  return wrong().empty() ? verdict() : wrong();
}

std::string SimulatedCluster::verdict() {
  // Agents that the driver had given up end by themselves, whether they can be reached or not.
  const TimePoint end = time_.now() + kAfterTheEnd;
  while (!workers_.running().empty() && time_.now() < end && wrong().empty() &&
         time_.advance(kNever, [] {})) {
  }
  for (const Incarnation left : workers_.running()) {
    return cat("a worker is left at the end: ", workers_.text(left));
  }
  history_.check_samples();
  if (!wrong().empty()) return wrong();
  if (journal_ && !journal_->wrong().empty()) return journal_->wrong();
  const action::Finish& finish = rules_->finish();
  if (finish.reason.empty()) return "no reason was given";
  if (rules_->is_to_suspend()) return verdict_on_suspension(finish);
  return verdict_on(finish);
}

std::string SimulatedCluster::verdict_on(const action::Finish& finish) const {
  if (finish.exit_code == 0) return "";
  if (!finish.failure) return "a failure without a name";
  // With Horovod's policy one failure may take the last host.
  const bool may_fail =
      climate_.may_fail || options_.elastic.budget.policy == driver::FailurePolicy::host;
  return may_fail ? "" : cat("the job failed: ", finish.reason);
}

// ---- the driver ----

void SimulatedCluster::to_driver(const Event& event) {
  if (driver_is_dead_) return;
  if (held_up_until_ > time_.now() || !waiting_.empty()) {
    waiting_.push_back(event);
  } else if (const auto told = after_takeover(event)) {
    step(*told);
  }
}

void SimulatedCluster::step(const Event& event) {
  if (is_over() || driver_is_dead_) return;
  const TimePoint now = time_.now();
  const bool routine =
      std::holds_alternative<event::Heard>(event) || std::holds_alternative<event::Tick>(event);
  rules_->before(event, now);
  auto actions = job_->step(event, now);
  if (journal_) journal_->step(event, actions, *job_, now);
  record(event, actions);
  spoil(actions);
  for (const auto& action : actions) rules_->answered(action);
  rules_->after(event, now, dice_.one_in(routine && actions.empty() ? kDetail : kDetail / 8));
  if (history_.tells() && (!actions.empty() || !routine)) {
    history_.tell(cat(time_.passed().count(), " ms: event ", event.index(), " for the driver"));
    for (const auto& action : actions) {
      history_.tell("    " + driver::to_text(action, job_->host_names()));
    }
  }
  const bool dies = !actions.empty() && !calm_ && dice_.one_in(climate_.driver_dies_in_step);
  const auto done = static_cast<std::size_t>(
      dies ? dice_.below(static_cast<int>(actions.size()) + 1) : static_cast<int>(actions.size()));
  for (std::size_t i = 0; i < done; ++i) {
    if (takeover_ && takeover_->defer(actions[i])) continue;
    std::visit([this](const auto& value) { perform(value); }, actions[i]);
  }
  if (dies) return lose_driver();
  if (rules_->is_to_suspend()) look_whether_it_ends();
  if (job_->world().generation > in_force_) {
    in_force_ = job_->world().generation;
    workers_.hear(job_->world());
  }
}

void SimulatedCluster::find() {
  event::HostsFound found;
  for (const auto& machine : machines_) {
    if (machine.found)
      found.hosts.push_back({{machine.name, machine.open ? 0 : machine.slots}, machine.local});
  }
  if (dice_.one_in(3)) std::reverse(found.hosts.begin(), found.hosts.end());
  to_driver(found);
}

// ---- wires ----

void SimulatedCluster::tell(HostIndex host, const Event& event) {
  HostSession& session = sessions_[host];
  if (session.gone) return;
  const bool is_last = std::holds_alternative<event::AgentGone>(event) ||
                       std::holds_alternative<event::HostFailed>(event);
  if (const auto* const entered = std::get_if<event::WorldEntered>(&event)) entered_ = *entered;
  if (driver::is_report(event)) session.reports.push_back(event);
  if (!has_driver(host)) {
    if (is_last) {
      session.gone = true;
      kill_all_on(host, milliseconds(20));
    }
    return;
  }
  if (is_cut_off(host) || !session.outbox.empty()) {
    session.outbox.push_back(event);
    return;
  }
  if (is_last) {
    session.gone = true;
    kill_all_on(host, milliseconds(20));
  }
  to_driver(event);
}

bool SimulatedCluster::frozen(HostIndex host) const {
  return machines_[sessions_[host].machine].lease_ends <= time_.now();
}

bool SimulatedCluster::given_up(Incarnation incarnation) const {
  const HostIndex host = workers_.host_of(incarnation);
  const TimePoint leave_by = job_->workers()[incarnation - 1].leave_by;
  return leave_by <= job_->own_time(time_.now()) || sessions_[host].gone ||
         job_->hosts()[host].state >= driver::HostState::dropping ||
         machines_[sessions_[host].machine].cut_off_until > time_.now();
}

TimePoint SimulatedCluster::reaches_driver(HostIndex host) const {
  return std::max(machines_[sessions_[host].machine].cut_off_until, time_.now());
}

TimePoint SimulatedCluster::reaches_others(HostIndex host) const {
  const Machine& machine = machines_[sessions_[host].machine];
  return machine.cut_off_from_all ? std::max(machine.cut_off_until, time_.now()) : time_.now();
}

void SimulatedCluster::beat(HostIndex host) {
  schedule(options_.heartbeat_timeout / 10, [this, host] {
    if (sessions_[host].gone || is_over()) return;
    if (has_driver(host) && !is_cut_off(host)) to_driver(event::Heard{host});
    beat(host);
  });
}

// ---- what the driver does ----

void SimulatedCluster::perform(const action::PublishWorld& action) {
  if (takeover_) takeover_->publish(action.world);
  if (climate_.driver_dies + climate_.driver_dies_in_step > 0) {
    std::string members;
    for (const auto& member : action.world.members) members += cat(member.incarnation, " ");
    const auto [known, is_new] = published_.try_emplace(action.world.generation, members);
    if (!is_new && known->second != members) {
      rules_->wrong(cat("generation ", action.world.generation, " is published with members ",
                        members, "and with ", known->second));
    }
  }
  if (action.world.state == WorldState::proposed || action.world.last) workers_.hear(action.world);
}

void SimulatedCluster::perform(const action::StartAgent& action) {
  const std::string& name = job_->hosts()[action.host].name;
  const auto machine = std::find_if(machines_.begin(), machines_.end(),
                                    [&](const Machine& one) { return one.name == name; });
  sessions_.resize(std::max(sessions_.size(), action.host + 1));
  sessions_[action.host].machine = static_cast<std::size_t>(machine - machines_.begin());
  sessions_[action.host].assigned = true;
  const HostIndex host = action.host;
  schedule_for_driver(dice_.up_to(10), [this, host] {
    if (sessions_[host].gone) return;
    tell(host, event::HostProgress{host, Step::connect});
    if (!calm_ && dice_.one_in(climate_.host_fails)) {
      schedule_for_driver(dice_.up_to(300), [this, host] {
        tell(host, event::HostFailed{host, {Step::connect, "refused", 1}});
      });
      return;
    }
    const int time = !calm_ && dice_.one_in(climate_.slow_start) ? 3'000 : 60;
    schedule_for_driver(dice_.up_to(time), [this, host] {
      if (sessions_[host].gone || job_->hosts()[host].state != driver::HostState::starting) return;
      sessions_[host].ready = true;
      Machine& there = machines_[sessions_[host].machine];
      if (there.open && dice_.one_in(4)) ++there.slots;  // it was away, and has more now
      if (driver_ > 1 && !is_cut_off(host)) there.lease_ends = kNever;  // that of an older agent
      // One that still holds workers there is ended.
      for (HostIndex older = 0; older < sessions_.size(); ++older) {
        const bool is_older = older != host && sessions_[older].machine == sessions_[host].machine;
        if (is_older && sessions_[older].gone && sessions_[older].holds_until != kNever) {
          kill_all_on(older, milliseconds(0));
        }
      }
      tell(host, event::AgentReady{host, {0, there.slots}});
      if (options_.heartbeat_timeout.count() != 0 && !std::exchange(sessions_[host].beats, true)) {
        beat(host);
      }
    });
  });
}

void SimulatedCluster::perform(const action::PlanStands& /*action*/) {
  rules_->wrong("a plan that stands");
}

void SimulatedCluster::perform(const action::ChooseAddresses& /*action*/) {
  rules_->wrong("addresses of all hosts are chosen");
}

void SimulatedCluster::perform(const action::FindAddress& action) {
  schedule_for_driver(dice_.up_to(10), [this, host = action.host] {
    if (sessions_[host].gone || job_->hosts()[host].state != driver::HostState::ready) return;
    to_driver(event::AddressFound{host, cat("fd00::", sessions_[host].machine)});
  });
}

void SimulatedCluster::perform(const action::Launch& action) {
  const HostIndex host = action.host;
  const Incarnation incarnation = action.member.incarnation;
  started_.resize(std::max(started_.size(), static_cast<std::size_t>(incarnation) + 1));
  started_[incarnation].host = host;
  if (!calm_ && dice_.one_in(climate_.launch_hangs)) return;
  const bool fails = !calm_ && dice_.one_in(climate_.launch_fails);
  const bool is_member = action.member.rank >= 0;
  const auto& broken = machine_of(host).broken;
  const auto slot = static_cast<std::size_t>(action.member.slot);
  const bool is_broken = slot < broken.size() && broken[slot];
  schedule(dice_.up_to(15),
           [this, host, incarnation, fails, is_member, is_broken, driver = driver_] {
             if (sessions_[host].gone || !arrives(host, driver)) return;
             if (std::exchange(started_[incarnation].asked_for, true)) {
               if (driver_ == 1)
                 rules_->wrong(cat("incarnation ", incarnation, " is launched twice"));
               return;
             }
             if (fails) {
               tell(host, event::LaunchFailed{host, incarnation, EACCES, "no"});
               return;
             }
             started_[incarnation].launched = true;
             tell(host, event::Launched{host, incarnation, 1 + static_cast<int>(incarnation),
                                        workers_.kept_by_agent(host)});
             if (is_broken && !climate_.breaks_late) {
               schedule(dice_.up_to(30), [this, host, incarnation] {
                 if (!sessions_[host].gone)
                   tell(host, event::Exited{host, incarnation, 7, 0, false});
               });
               return;
             }
             workers_.start(incarnation, host, is_member);
             if (is_broken) {
               schedule(milliseconds(50) + dice_.up_to(200), [this, incarnation] {
                 // A failure while all end would be the job's.
                 if (!finishing_ && workers_.runs(incarnation)) workers_.die(incarnation, 7, 0);
               });
             }
             if (started_[incarnation].stopping) stop_worker(incarnation, milliseconds(10), 15);
           });
}

// A worker that its agent was asked to start and has not yet is started, and then ended.
void SimulatedCluster::stop_worker(Incarnation incarnation, milliseconds after, int signal,
                                   bool in_peace) {
  started_[incarnation].stopping = true;
  schedule(after, [this, incarnation, signal, in_peace] {
    if (workers_.runs(incarnation)) workers_.die(incarnation, 0, signal, in_peace);
  });
}

void SimulatedCluster::kill_all_on(HostIndex host, milliseconds within) {
  for (Incarnation incarnation = 1; incarnation < started_.size(); ++incarnation) {
    if (started_[incarnation].host != host || !started_[incarnation].launched) continue;
    stop_worker(incarnation, dice_.up_to(static_cast<int>(within.count())), 9);
  }
}

void SimulatedCluster::perform(const action::StopWorkers& action) {
  for (Incarnation incarnation = 1; incarnation < started_.size(); ++incarnation) {
    if (started_[incarnation].host != action.host ||
        (action.incarnation != driver::kEveryWorker && action.incarnation != incarnation)) {
      continue;
    }
    const bool job_goes_on = action.incarnation != driver::kEveryWorker;
    // What was right when it was asked for is asked for once more.
    if (job_goes_on && !repeats_) workers_.check_heirs(incarnation);
    // Its agent kills what is still there when the grace is over; also what it was yet to start.
    const bool ignores = dice_.one_in(5);
    const milliseconds at = ignores ? action.grace : std::min(action.grace, dice_.up_to(50));
    stop_worker(incarnation, milliseconds(10) + at, ignores ? 9 : 15, job_goes_on);
  }
}

void SimulatedCluster::perform(const action::KillWorkers& action) {
  for (Incarnation incarnation = 1; incarnation < started_.size(); ++incarnation) {
    if (started_[incarnation].host != action.host ||
        (action.incarnation != driver::kEveryWorker && action.incarnation != incarnation)) {
      continue;
    }
    stop_worker(incarnation, dice_.up_to(10), 9);
  }
}

void SimulatedCluster::perform(const action::DescribeWorker& action) {
  schedule(dice_.up_to(10), [this, host = action.host, incarnation = action.incarnation] {
    tell(host, event::Described{host, incarnation, "it runs"});
  });
}

void SimulatedCluster::perform(const action::ShutDownAgent& action) {
  if (dice_.one_in(climate_.agent_stays)) return;
  schedule(dice_.up_to(10), [this, host = action.host, driver = driver_] {
    if (arrives(host, driver)) tell(host, event::AgentGone{host, "left"});
  });
}

// The driver gives up its own end: it needs no answer for that. The agent kills when it sees
// the end of the link, and what is cut off when it has been silent for too long.
void SimulatedCluster::perform(const action::DropAgent& action) {
  // The driver that was to bring it there may have died before.
  sessions_.resize(std::max(sessions_.size(), action.host + 1));
  schedule(dice_.up_to(10), [this, host = action.host, driver = driver_] {
    const bool was_gone = sessions_[host].gone;
    if (driver != driver_ || driver_is_dead_) {
      // It had been told to, or had not.
      if (was_gone || !arrives(host, driver)) return;
      sessions_[host].gone = true;
      kill_all_on(host, milliseconds(20));
      return;
    }
    if (takeover_ && takeover_->looks_for(host)) {
      // It cannot be told, and holds its workers on.
      sessions_[host].gone = true;
      return to_driver(event::AgentGone{host, "was given up before it was connected"});
    }
    if (std::exchange(sessions_[host].gone, true)) return;
    const Duration sees = reaches_driver(host) - time_.now();
    time_.after(std::min<Duration>(sees, options_.orphan_timeout),
                [this, host] { kill_all_on(host, milliseconds(20)); });
    if (!sessions_[host].ready && dice_.one_in(2)) {
      to_driver(event::HostFailed{host, {Step::connect, "given up", 1}});
    } else {
      to_driver(event::AgentGone{host, "was killed"});
    }
  });
}

}  // namespace hvd
