#include "tests/driver/simulated_elastic_job.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/text.h"

namespace hvd::driver {
namespace {

using std::chrono::milliseconds;

constexpr int kSteps = 400'000;
constexpr int kDetail = 64;  // of what changes nothing, one step in so many is looked at in detail
constexpr milliseconds kFaultsFor{60'000};
constexpr milliseconds kCalmFor{120'000};  // more than any rest and any start
constexpr int kEnd = 5'000;                // of work, when it is said that it is done

}  // namespace

SimulatedElasticJob::SimulatedElasticJob(std::uint64_t seed, const Climate& climate, int max_hosts,
                                         int max_slots)
    : dice_(seed), climate_(climate) {
  const int count = 1 + dice_.below(max_hosts);
  for (int index = 0; index < count; ++index) {
    machines_.push_back({cat("h", index), 1 + dice_.below(max_slots), true, dice_.one_in(5), {}});
  }
  options_.job.job_id = "simulated";
  options_.job.grace = dice_.up_to(3'000);
  options_.job.start_timeout = milliseconds(10'000);
  if (!dice_.one_in(4))
    options_.job.heartbeat_timeout = milliseconds(dice_.one_in(2) ? 300 : 3'000);
  options_.job.orphan_timeout = milliseconds(8'000);
  options_.elastic_timeout = milliseconds(90'000);
  options_.leave_grace = milliseconds(4'000);
  options_.budget.restarts = dice_.below(4);
  options_.budget.policy = dice_.one_in(4) ? FailurePolicy::host : FailurePolicy::slot;
  options_.budget.shortest = milliseconds(1'000);
  options_.budget.longest = milliseconds(20'000);
  options_.jitter_seed = seed;
  int slots = 0;
  for (const auto& machine : machines_) slots += machine.slots;
  if (dice_.one_in(2)) options_.limits.least = 1 + dice_.below(slots);
  if (dice_.one_in(3)) options_.limits.most = options_.limits.least + dice_.below(slots);
  if (dice_.one_in(3)) options_.limits.spares = dice_.below(3);
  if (dice_.one_in(3)) options_.processes = options_.limits.least;
  job_ = std::make_unique<ElasticJob>(options_);
  rules_ = std::make_unique<ElasticRules>(*job_, options_);
}

std::string SimulatedElasticJob::run() {
  step(event::Begin{});
  schedule(dice_.up_to(1'000), [this] { find(); });
  plan_faults();
  commit();
  schedule(kFaultsFor, [this] { settle_down(); });
  for (int steps = 0; rules_->wrong().empty() && !rules_->finished(); ++steps) {
    if (steps > kSteps) return "does not come to an end";
    const TimePoint deadline = job_->next_deadline();
    if (plan_.empty() && deadline == kNever) {
      return cat("nothing will ever happen again; waits for ", job_->waiting_for(now_));
    }
    if (plan_.empty() || deadline <= plan_.top().at) {
      now_ = std::max({now_, deadline, held_up_until_});
      step(event::Tick{});
    } else {
      const Planned next = plan_.top();
      plan_.pop();
      now_ = std::max({now_, next.at, held_up_until_});
      next.work();
    }
  }
  return rules_->wrong().empty() ? verdict() : rules_->wrong();
}

std::string SimulatedElasticJob::verdict() {
  const action::Finish& finish = rules_->finish();
  if (finish.reason.empty()) return "no reason was given";
  if (finish.exit_code != 0) {
    if (!finish.failure) return "a failure without a name";
    // With Horovod's policy one failure may take the last host.
    const bool may_fail = climate_.may_fail || options_.budget.policy == FailurePolicy::host;
    return may_fail ? "" : cat("the job failed: ", finish.reason);
  }
  if (!finishing_) return "success, although nobody said so";
  for (const auto& [incarnation, worker] : workers_) {
    if (worker.alive && !visits_[worker.host].gone) return "a worker is left at the end";
  }
  return "";
}

void SimulatedElasticJob::step(const Event& event) {
  if (rules_->finished() || !rules_->wrong().empty()) return;
  const bool routine =
      std::holds_alternative<event::Heard>(event) || std::holds_alternative<event::Tick>(event);
  rules_->before(event);
  const auto actions = job_->step(event, now_);
  if (!actions.empty() || !routine) {
    story_ += cat(std::chrono::duration_cast<milliseconds>(now_ - start_).count(), " ms: event ",
                  event.index(), "\n");
  }
  for (const auto& action : actions) {
    story_ += "    " + to_text(action, job_->host_names()) + "\n";
    rules_->answered(action);
  }
  rules_->after(event, now_, !actions.empty() || !routine || dice_.one_in(kDetail));
  for (const auto& action : actions) {
    std::visit([this](const auto& value) { perform(value); }, action);
  }
}

void SimulatedElasticJob::schedule(milliseconds after, std::function<void()> work) {
  plan_.push({now_ + after, order_++, std::move(work)});
}

// ---- the network ----

bool SimulatedElasticJob::cut_off(HostIndex host) const {
  return machines_[visits_[host].machine].cut_off_until > now_;
}

void SimulatedElasticJob::tell(HostIndex host, const Event& event) {
  Visit& visit = visits_[host];
  if (visit.gone) return;
  if (cut_off(host)) {
    visit.outbox.push_back(event);
    return;
  }
  if (std::holds_alternative<event::AgentGone>(event) ||
      std::holds_alternative<event::HostFailed>(event)) {
    visit.gone = true;
  }
  step(event);
}

void SimulatedElasticJob::beat(HostIndex host) {
  schedule(options_.job.heartbeat_timeout / 10, [this, host] {
    if (visits_[host].gone || rules_->finished()) return;
    if (!cut_off(host)) step(event::Heard{host});
    beat(host);
  });
}

void SimulatedElasticJob::cut_off_machine() {
  const auto index = static_cast<std::size_t>(dice_.below(static_cast<int>(machines_.size())));
  const milliseconds time = dice_.one_in(2) ? dice_.up_to(1'000) : dice_.up_to(15'000);
  machines_[index].cut_off_until = now_ + time;
  schedule(time, [this, index] {
    for (HostIndex host = 0; host < visits_.size(); ++host) {
      if (visits_[host].machine != index || visits_[host].gone || cut_off(host)) continue;
      for (const auto& event : std::exchange(visits_[host].outbox, {})) tell(host, event);
    }
  });
}

// ---- discovery ----

void SimulatedElasticJob::find() {
  event::HostsFound found;
  for (const auto& machine : machines_) {
    if (machine.found) found.hosts.push_back({{machine.name, machine.slots}, machine.local});
  }
  if (dice_.one_in(3)) std::reverse(found.hosts.begin(), found.hosts.end());
  step(found);
}

void SimulatedElasticJob::change_discovery(bool honest) {
  Machine& machine =
      machines_[static_cast<std::size_t>(dice_.below(static_cast<int>(machines_.size())))];
  if (honest && dice_.one_in(2)) {
    machine.slots = 1 + dice_.below(4);
  } else {
    machine.found = !machine.found;
    // Two changes within a second, and a host that comes back.
    if (dice_.one_in(2)) {
      schedule(dice_.up_to(2'000), [this, &machine] {
        machine.found = true;
        find();
      });
    }
  }
  find();
}

// ---- faults ----

void SimulatedElasticJob::now_and_then(int mean, const std::function<void()>& work) {
  if (mean == 0) return;
  schedule(dice_.up_to(2 * mean), [this, mean, work] {
    if (calm_ || rules_->finished()) return;
    work();
    now_and_then(mean, work);
  });
}

std::size_t SimulatedElasticJob::some_worker() {
  std::vector<Incarnation> alive;
  for (const auto& [incarnation, worker] : workers_) {
    if (worker.alive && !visits_[worker.host].gone) alive.push_back(incarnation);
  }
  return alive.empty()
             ? 0
             : alive[static_cast<std::size_t>(dice_.below(static_cast<int>(alive.size())))];
}

void SimulatedElasticJob::plan_faults() {
  now_and_then(climate_.worker_killed, [this] {
    if (const auto one = some_worker(); one != 0) end_worker(one, 0, 9);
    if (dice_.one_in(4)) {
      if (const auto one = some_worker(); one != 0) end_worker(one, 0, 9);
    }
  });
  now_and_then(climate_.worker_fails, [this] {
    const auto one = some_worker();
    // A program that never called hvd::init may well end with 0.
    const int least = workers_[one].joined ? 0 : 1;
    if (one != 0) end_worker(one, least + dice_.below(2), dice_.one_in(2) ? 11 : 0);
  });
  now_and_then(climate_.worker_leaves, [this] {
    if (const auto one = some_worker(); one != 0) {
      tell(workers_[one].host, event::LeaveRequested{workers_[one].host, one});
    }
  });
  const auto some_visit = [this](const std::function<void(HostIndex)>& work) {
    if (visits_.empty()) return;
    const auto host = static_cast<HostIndex>(dice_.below(static_cast<int>(visits_.size())));
    if (!visits_[host].gone) work(host);
  };
  now_and_then(climate_.host_leaves, [this, some_visit] {
    some_visit([this](HostIndex host) { tell(host, event::HostLeaves{host}); });
  });
  now_and_then(climate_.agent_dies, [this, some_visit] {
    some_visit([this](HostIndex host) { tell(host, event::AgentGone{host, "died"}); });
  });
  now_and_then(climate_.agent_lies, [this, some_visit] {
    some_visit([this](HostIndex host) {
      if (dice_.one_in(2)) {
        tell(host, event::Exited{host, 1'000'000, 0, 0, false});
      } else {
        tell(host, event::Committed{host, 1, 2});
      }
    });
  });
  now_and_then(climate_.host_cut_off, [this] { cut_off_machine(); });
  now_and_then(climate_.discovery_changes, [this] { change_discovery(true); });
  now_and_then(climate_.driver_stalls, [this] { held_up_until_ = now_ + dice_.up_to(3'000); });
}

// From now on nothing goes wrong any more: in the end the world is as large as it can be.
void SimulatedElasticJob::settle_down() {
  calm_ = true;
  for (auto& machine : machines_) machine.found = true;
  find();
  schedule(kCalmFor, [this] {
    if (job_->state() == ElasticState::stopping || job_->state() == ElasticState::killing ||
        job_->state() == ElasticState::closing) {
      return;
    }
    int slots = 0;
    for (const auto& machine : machines_) slots += machine.slots;
    if (options_.limits.most != 0)
      slots = std::min(slots, options_.limits.most + options_.limits.spares);
    const auto wanted = static_cast<std::size_t>(world_size(slots, options_.limits));
    if (job_->world().members.size() < wanted) {
      rules_->wrong(cat("the world has ", job_->world().members.size(), " workers and should have ",
                        wanted, "; waits for ", job_->waiting_for(now_)));
    }
    for (const auto& member : world_.members) {
      const Worker& one = workers_[member.incarnation];
      if (!one.alive || !one.joined || visits_[one.host].gone) {
        story_ += cat(member.worker(), "/", member.incarnation, " can never commit: ", one.alive,
                      one.joined, visits_[one.host].gone, "\n");
      }
    }
    if (job_->world().members != world_.members) rules_->wrong("workers are in another world");
    finish_work();
  });
}

void SimulatedElasticJob::finish_work() {
  finishing_ = true;
  const bool with_a_kill = dice_.one_in(climate_.killed_at_the_end);
  for (const auto& member : world_.members) {
    const Incarnation incarnation = member.incarnation;
    finish(incarnation);
    if (with_a_kill && dice_.one_in(3) && member.rank != 0) {
      schedule(dice_.up_to(2 * kEnd), [this, incarnation] { end_worker(incarnation, 0, 9); });
    }
  }
}

void SimulatedElasticJob::finish(Incarnation incarnation) {
  if (!finishers_.insert(incarnation).second) return;
  const HostIndex host = workers_[incarnation].host;
  const milliseconds at = dice_.up_to(kEnd);
  schedule(at, [this, host, incarnation] {
    if (workers_[incarnation].alive) tell(host, event::Done{host, incarnation});
  });
  schedule(at + dice_.up_to(1'000), [this, incarnation] { end_worker(incarnation, 0, 0); });
}

// ---- workers ----

void SimulatedElasticJob::end_worker(Incarnation incarnation, int exit_code, int signal) {
  Worker& worker = workers_[incarnation];
  if (!std::exchange(worker.alive, false)) return;
  tell(worker.host,
       event::Exited{worker.host, incarnation, signal == 0 ? exit_code : 0, signal, false});
}

// What its agent was asked to start and has not is started, and then ended.
void SimulatedElasticJob::stop_worker(Incarnation incarnation, milliseconds after, int signal) {
  workers_[incarnation].stopping = true;
  schedule(after, [this, incarnation, signal] { end_worker(incarnation, 0, signal); });
}

// It is in no world any more.
void SimulatedElasticJob::leave(Incarnation incarnation) {
  if (dice_.one_in(climate_.stays)) return;
  const HostIndex host = workers_[incarnation].host;
  if (dice_.one_in(2)) {
    schedule(dice_.up_to(20), [this, host, incarnation] {
      if (workers_[incarnation].alive) tell(host, event::Done{host, incarnation});
    });
  }
  schedule(milliseconds(20) + dice_.up_to(500),
           [this, incarnation] { end_worker(incarnation, 0, 0); });
}

// Workers commit all the time; at a commit they go over to the newest world that was proposed.
void SimulatedElasticJob::commit() {
  schedule(milliseconds(50) + dice_.up_to(300), [this] {
    if (rules_->finished()) return;
    commit();
    const auto can_commit = [&](const WorldMember& member) {
      const Worker& worker = workers_[member.incarnation];
      return worker.alive && worker.joined && !visits_[worker.host].gone && !cut_off(worker.host);
    };
    if (finishing_ || world_.members.empty() || proposed_.empty() ||
        !std::all_of(world_.members.begin(), world_.members.end(), can_commit)) {
      return;
    }
    const WorldDocument next = proposed_.rbegin()->second;
    proposed_.clear();
    const WorldDocument before = std::exchange(world_, next);
    std::set<Incarnation> members;
    for (const auto& member : next.members) {
      members.insert(member.incarnation);
      if (!dice_.one_in(2) && member.rank != 0) continue;
      const HostIndex host = workers_[member.incarnation].host;
      schedule(dice_.up_to(40),
               [this, host, incarnation = member.incarnation, generation = next.generation] {
                 if (workers_[incarnation].alive)
                   tell(host, event::Committed{host, incarnation, generation});
               });
    }
    for (const auto& member : before.members) {
      if (members.count(member.incarnation) == 0) leave(member.incarnation);
    }
  });
}

void SimulatedElasticJob::effective(const WorldDocument& world) {
  if (world.generation <= world_.generation) return;  // they have gone over at a commit
  const WorldDocument before = std::exchange(world_, world);
  proposed_.clear();
  for (const auto& member : before.members) {
    const bool stays =
        std::any_of(world.members.begin(), world.members.end(),
                    [&](const WorldMember& one) { return one.incarnation == member.incarnation; });
    if (!stays && workers_[member.incarnation].alive && !finishing_) leave(member.incarnation);
  }
}

// ---- what the driver does ----

void SimulatedElasticJob::perform(const action::PublishWorld& action) {
  if (action.world.state == WorldState::effective) {
    effective(action.world);
    if (!finishing_) return;
    // A spare that stepped in while the others end ends like them.
    for (const auto& member : action.world.members) finish(member.incarnation);
  } else if (action.world.generation > world_.generation) {
    proposed_[action.world.generation] = action.world;
  }
}

void SimulatedElasticJob::perform(const action::StartAgent& action) {
  const std::string& name = job_->hosts()[action.host].name;
  const auto machine = std::find_if(machines_.begin(), machines_.end(),
                                    [&](const Machine& one) { return one.name == name; });
  visits_.resize(std::max(visits_.size(), action.host + 1));
  visits_[action.host].machine = static_cast<std::size_t>(machine - machines_.begin());
  const HostIndex host = action.host;
  schedule(dice_.up_to(50), [this, host] {
    if (visits_[host].gone) return;
    tell(host, event::HostProgress{host, Step::connect});
    if (!calm_ && dice_.one_in(climate_.host_fails)) {
      schedule(dice_.up_to(2'000), [this, host] {
        tell(host, event::HostFailed{host, {Step::connect, "refused", 1}});
      });
      return;
    }
    const milliseconds time =
        !calm_ && dice_.one_in(climate_.slow_start) ? dice_.up_to(15'000) : dice_.up_to(400);
    schedule(time, [this, host] {
      if (visits_[host].gone || job_->hosts()[host].state != HostState::starting) return;
      visits_[host].ready = true;
      tell(host, event::AgentReady{host});
      if (options_.job.heartbeat_timeout.count() != 0) beat(host);
    });
  });
}

void SimulatedElasticJob::perform(const action::ChooseAddresses& /*action*/) {
  rules_->wrong("addresses of all hosts are chosen");
}

void SimulatedElasticJob::perform(const action::FindAddress& action) {
  schedule(dice_.up_to(50), [this, host = action.host] {
    if (visits_[host].gone || job_->hosts()[host].state != HostState::ready) return;
    step(event::AddressFound{host, cat("fd00::", visits_[host].machine)});
  });
}

void SimulatedElasticJob::perform(const action::Launch& action) {
  const HostIndex host = action.host;
  const Incarnation incarnation = action.member.incarnation;
  workers_[incarnation] = {host, false, false, false};
  if (!calm_ && dice_.one_in(climate_.launch_hangs)) return;
  const bool fails = !calm_ && dice_.one_in(climate_.launch_fails);
  const bool is_member = action.member.rank >= 0;
  schedule(dice_.up_to(100), [this, host, incarnation, fails, is_member] {
    if (visits_[host].gone) return;
    if (fails) {
      tell(host, event::LaunchFailed{host, incarnation, EACCES, "no"});
      return;
    }
    workers_[incarnation].alive = true;
    // Its own words and its keeper's report reach the agent on two ways.
    const bool speaks_first = !workers_[incarnation].stopping && dice_.one_in(4);
    const auto speak = [this, host, incarnation, is_member] {
      if (!workers_[incarnation].alive) return;
      tell(host, event::Initialised{host, incarnation});
      if (!is_member) tell(host, event::WorkerReady{host, incarnation});
      workers_[incarnation].joined = true;
    };
    if (speaks_first) speak();
    tell(host, event::Launched{host, incarnation, 1 + static_cast<int>(incarnation)});
    if (speaks_first) return;
    if (workers_[incarnation].stopping) {
      stop_worker(incarnation, milliseconds(10), 15);
      return;
    }
    const int start = !calm_ && dice_.one_in(climate_.slow_start) ? 20'000 : 800;
    schedule(dice_.up_to(start), speak);
  });
}

void SimulatedElasticJob::perform(const action::StopWorkers& action) {
  for (const auto& [incarnation, worker] : workers_) {
    if (worker.host != action.host ||
        (action.incarnation != kEveryWorker && action.incarnation != incarnation)) {
      continue;
    }
    // Its agent kills what is still there when the grace is over; also what it was yet to start.
    const bool ignores = dice_.one_in(5);
    const milliseconds at = ignores ? action.grace : std::min(action.grace, dice_.up_to(500));
    stop_worker(incarnation, milliseconds(100) + at, ignores ? 9 : 15);
  }
}

void SimulatedElasticJob::perform(const action::KillWorkers& action) {
  for (const auto& [incarnation, worker] : workers_) {
    if (worker.host != action.host ||
        (action.incarnation != kEveryWorker && action.incarnation != incarnation)) {
      continue;
    }
    stop_worker(incarnation, dice_.up_to(50), 9);
  }
}

void SimulatedElasticJob::perform(const action::ShutDownAgent& action) {
  if (dice_.one_in(climate_.stays)) return;
  schedule(dice_.up_to(50), [this, host = action.host] {
    tell(host, event::AgentGone{host, "left"});
  });
}

// The driver gives up its own end: it needs nobody's answer for that.
void SimulatedElasticJob::perform(const action::DropAgent& action) {
  schedule(dice_.up_to(50), [this, host = action.host] {
    if (std::exchange(visits_[host].gone, true)) return;
    if (!visits_[host].ready && dice_.one_in(2)) {
      step(event::HostFailed{host, {Step::connect, "given up", 1}});
    } else {
      step(event::AgentGone{host, "was killed"});
    }
  });
}

}  // namespace hvd::driver
