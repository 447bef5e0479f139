// The job against simulated hosts over virtual time: agents that come late or never, die, lie, do
// not kill and do not leave; workers that fail, hang, ignore signals; people who press Ctrl-C. What
// must hold always is checked after every step.
//
// Each run has a seed, which is printed when something does not hold. HVD_SIMULATION_SEED=n runs
// that one alone; HVD_SIMULATION_RUNS=n changes how many there are.
#include <algorithm>
#include <cstdlib>
#include <gtest/gtest.h>
#include <map>
#include <queue>
#include <random>
#include <set>

#include "base/text.h"
#include "driver/job.h"
#include "driver/plan.h"

namespace hvd::driver {
namespace {

using std::chrono::milliseconds;

constexpr Incarnation kNobody = 1'000'000;  // that no worker has

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}
  int below(int limit) { return static_cast<int>(engine_() % static_cast<std::uint64_t>(limit)); }
  bool one_in(int chances) { return chances > 0 && below(chances) == 0; }
  milliseconds up_to(int limit) { return milliseconds(below(limit + 1)); }

 private:
  std::mt19937_64 engine_;
};

// How bad the world is: one chance in so many, 0 for never.
struct Weather {
  int agent_never_ready = 0;
  int agent_dies = 0;
  int agent_lies = 0;
  int agent_deaf = 0;      // to stop and kill
  int agent_stays = 0;     // does not leave when told
  int agent_immortal = 0;  // cannot be dropped
  int launch_fails = 0;
  int worker_fails = 0;
  int worker_forgets_done = 0;
  int some_join = 0;     // one of so many runs: only some of its workers call hvd::init
  int worker_hangs = 0;  // never ends by itself
  int worker_ignores_stop = 0;
  int interrupts = 0;  // one of so many runs; then one to three signals
};

class Simulation {
 public:
  Simulation(std::uint64_t seed, const Weather& weather, int max_hosts, int max_slots)
      : dice_(seed), weather_(weather) {
    std::vector<HostSlots> hosts;
    const int count = 1 + dice_.below(max_hosts);
    for (int host = 0; host < count; ++host) {
      hosts.push_back({cat("h", host), 1 + dice_.below(max_slots)});
    }
    options_.job_id = "simulated";
    options_.grace = dice_.up_to(6'000);
    const auto plan = plan_static(hosts, 1 + dice_.below(2 * count * max_slots), true);
    EXPECT_TRUE(plan.ok()) << plan.status().to_string();
    job_ = std::make_unique<Job>(options_, plan->members);
    agents_.resize(job_->hosts().size());
    workers_.resize(job_->workers().size());
    some_join_ = dice_.one_in(weather_.some_join);
    all_join_ = dice_.one_in(2);
  }

  // Runs to the end, or to the first thing that does not hold; "" if all did.
  std::string run() {
    if (dice_.one_in(weather_.interrupts)) {
      milliseconds at = dice_.up_to(40'000);
      for (int count = 1 + dice_.below(3); count > 0; --count) {
        schedule(at, event::StopRequested{dice_.one_in(2) ? 2 : 15});
        at += dice_.up_to(4'000);
      }
    }
    step(event::Begin{});
    int steps = 0;
    while (wrong_.empty() && !finish_) {
      if (++steps > 1'000'000) return "does not come to an end";
      const TimePoint deadline = job_->next_deadline();
      if (events_.empty() && deadline == kNever) {
        return cat("nothing will ever happen again; waits for ", job_->waiting_for(now_));
      }
      if (events_.empty() || deadline < events_.top().at) {
        now_ = deadline;
        step(event::Tick{});
      } else {
        const Planned next = events_.top();
        events_.pop();
        now_ = next.at;
        if (still_true(next.event)) step(next.event);
      }
    }
    if (wrong_.empty()) check_outcome();
    return wrong_;
  }

  const std::string& story() const { return story_; }
  JobState state() const { return job_->state(); }

 private:
  struct Planned {
    TimePoint at;
    std::uint64_t order;
    Event event;
    bool operator<(const Planned& other) const {  // the earliest on top of the queue
      return std::tie(at, order) > std::tie(other.at, other.order);
    }
  };
  struct Agent {
    bool started = false;
    bool ready = false;
    bool dead = false;
    bool deaf = false;
    TimePoint busy_until{};  // what it reports, it reports in order
  };
  struct Worker {
    bool launched = false;  // asked for
    bool runs = false;
    bool ended = false;
    bool ignores_stop = false;
    bool initialised = false;
    bool done = false;
  };

  void schedule(milliseconds after, Event event) {
    events_.push({now_ + after, order_++, std::move(event)});
  }
  // In order with what this agent reported before.
  void report(HostIndex host, milliseconds after, Event event) {
    auto& agent = agents_[host];
    const TimePoint at = std::max(agent.busy_until, now_ + after);
    agent.busy_until = std::max(agent.busy_until, at);
    events_.push({at, order_++, std::move(event)});
  }

  // An event that was planned may have become impossible since.
  bool still_true(const Event& event) {
    return std::visit([this](const auto& value) { return happens(value); }, event);
  }
  bool happens(const event::Begin&) { return true; }
  bool happens(const event::Tick&) { return true; }
  bool happens(const event::StopRequested&) { return true; }
  bool happens(const event::AgentBroken& event) { return !agents_[event.host].dead; }
  bool happens(const event::AgentReady& event) {
    auto& agent = agents_[event.host];
    if (agent.dead) return false;
    agent.ready = true;
    return true;
  }
  bool happens(const event::AgentGone& event) {
    auto& agent = agents_[event.host];
    if (agent.dead) return false;
    agent.dead = true;
    for (const std::size_t worker : job_->hosts()[event.host].workers) {
      workers_[worker].ended = true;
      workers_[worker].runs = false;
    }
    return true;
  }
  bool happens(const event::Launched& event) {
    if (agents_[event.host].dead) return false;
    Worker& worker = workers_[job_->index_of(event.incarnation)];
    if (worker.ended) return false;
    worker.runs = true;
    return true;
  }
  bool happens(const event::LaunchFailed& event) {
    if (agents_[event.host].dead) return false;
    Worker& worker = workers_[job_->index_of(event.incarnation)];
    worker.ended = true;
    return true;
  }
  bool happens(const event::Initialised& event) {
    const std::size_t index = job_->index_of(event.incarnation);
    if (agents_[event.host].dead || !workers_[index].runs) return false;
    workers_[index].initialised = true;
    workers_[index].done = false;
    return true;
  }
  bool happens(const event::Done& event) {
    const std::size_t index = job_->index_of(event.incarnation);
    if (agents_[event.host].dead || !workers_[index].runs) return false;
    workers_[index].done = true;
    return true;
  }
  bool happens(const event::Exited& event) {
    const std::size_t index = job_->index_of(event.incarnation);
    if (agents_[event.host].dead) return false;
    if (index == workers_.size()) return true;  // a lie
    Worker& worker = workers_[index];
    if (!worker.runs) return false;
    worker.runs = false;
    worker.ended = true;
    return true;
  }

  void step(const Event& event) {
    story_ += cat(std::chrono::duration_cast<milliseconds>(now_ - start_).count(), " ms: event ",
                  event.index(), "\n");
    note_first_failure(event);
    const auto actions = job_->step(event, now_);
    for (const auto& action : actions) {
      story_ += "    " + to_text(action, job_->host_names()) + "\n";
      if (finish_) wrong("something follows after finish");
      std::visit([this](const auto& value) { perform(value); }, action);
    }
    check_always();
  }

  // What a reader of the rules would expect of the first failure.
  void note_first_failure(const Event& event) {
    if (expected_code_ || job_->state() >= JobState::stopping) return;
    if (const auto* stop = std::get_if<event::StopRequested>(&event)) {
      expected_code_ = 128 + stop->signal_number;
    } else if (const auto* failed = std::get_if<event::LaunchFailed>(&event)) {
      expected_code_ = failed->error_number == ENOENT ? 127 : 126;
    } else if (const auto* exited = std::get_if<event::Exited>(&event)) {
      const std::size_t index = job_->index_of(exited->incarnation);
      const bool lie = index == workers_.size();
      const bool ended_well = exited->signal_number == 0 && exited->exit_code == 0;
      if (lie || (ended_well && workers_[index].initialised && !workers_[index].done)) {
        expected_code_ = 1;
      } else if (exited->signal_number != 0) {
        expected_code_ = 128 + exited->signal_number;
      } else if (exited->exit_code != 0) {
        expected_code_ = exited->exit_code;
      } else if (!workers_[index].initialised) {
        somebody_is_absent_ = true;
        if (somebody_has_joined_) expected_code_ = 1;
      }
    } else if (std::holds_alternative<event::Initialised>(event)) {
      somebody_has_joined_ = true;
      if (somebody_is_absent_) expected_code_ = 1;
    } else if (std::holds_alternative<event::AgentGone>(event) ||
               std::holds_alternative<event::AgentBroken>(event)) {
      const auto* gone = std::get_if<event::AgentGone>(&event);
      const HostIndex host = gone ? gone->host : std::get<event::AgentBroken>(event).host;
      if (job_->hosts()[host].state < HostState::closing) expected_code_ = 1;
    } else if (std::holds_alternative<event::Tick>(event)) {
      // Before the stop the only deadlines are those of starting.
      if (job_->next_deadline() <= now_) expected_code_ = 1;
    }
  }

  // ---- what the simulated hosts do ----

  void perform(const action::PublishWorld& action) {
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
  void perform(const action::StartAgent& action) {
    Agent& agent = agents_[action.host];
    if (std::exchange(agent.started, true)) wrong("an agent was started twice");
    agent.deaf = dice_.one_in(weather_.agent_deaf);
    if (dice_.one_in(weather_.agent_dies)) {
      schedule(dice_.up_to(50'000), event::AgentGone{action.host, "died"});
    }
    if (dice_.one_in(weather_.agent_lies)) {
      if (dice_.one_in(2)) {
        schedule(dice_.up_to(50'000), event::AgentBroken{action.host, "spoke rubbish"});
      } else {
        schedule(dice_.up_to(50'000), event::Exited{action.host, kNobody, 0, 0, false});
      }
    }
    agent_comes_[action.host] = !dice_.one_in(weather_.agent_never_ready);
    if (agent_comes_[action.host]) {
      report(action.host, dice_.up_to(dice_.one_in(20) ? 40'000 : 500),
             event::AgentReady{action.host});
    }
  }
  void perform(const action::Launch& action) {
    const std::size_t index = job_->index_of(action.member.incarnation);
    if (published_ == 0) wrong("a worker was launched before the world was published");
    if (!agents_[action.host].started) wrong("a worker was launched before its agent");
    if (std::exchange(workers_[index].launched, true)) wrong("a worker was launched twice");
    if (!agent_comes_[action.host]) return;
    const Incarnation incarnation = action.member.incarnation;
    const HostIndex host = action.host;
    const milliseconds start = dice_.up_to(200);
    if (dice_.one_in(weather_.launch_fails)) {
      report(host, start,
             event::LaunchFailed{host, incarnation, dice_.one_in(2) ? ENOENT : EACCES, "no"});
      return;
    }
    report(host, start, event::Launched{host, incarnation, 1 + static_cast<int>(index)});
    workers_[index].ignores_stop = dice_.one_in(weather_.worker_ignores_stop);
    // From here on the agent's order only matters for one worker: times grow along the way.
    milliseconds at = std::chrono::ceil<milliseconds>(agents_[host].busy_until - now_);
    if (some_join_ ? dice_.one_in(2) : all_join_) {
      at += dice_.up_to(5'000);
      schedule(at, event::Initialised{host, incarnation});
      if (!dice_.one_in(weather_.worker_forgets_done)) {
        at += dice_.up_to(20'000);
        schedule(at, event::Done{host, incarnation});
      }
    }
    if (dice_.one_in(weather_.worker_hangs)) {
      // Something ends it, or the simulation would be right not to come to an end.
      schedule(milliseconds(100'000) + dice_.up_to(1'000), event::StopRequested{2});
      return;
    }
    at += dice_.up_to(20'000);
    schedule(at, exit_of(host, incarnation));
  }
  event::Exited exit_of(HostIndex host, Incarnation incarnation) {
    if (!dice_.one_in(weather_.worker_fails)) return {host, incarnation, 0, 0, false};
    if (dice_.one_in(2)) return {host, incarnation, 0, 1 + dice_.below(31), false};
    return {host, incarnation, 1 + dice_.below(255), 0, false};
  }
  void perform(const action::StopWorkers& action) {
    if (agents_[action.host].deaf) return;
    for (const std::size_t index : job_->hosts()[action.host].workers) {
      const Incarnation incarnation = job_->workers()[index].member.incarnation;
      const milliseconds at =
          workers_[index].ignores_stop ? action.grace : std::min(action.grace, dice_.up_to(3'000));
      schedule(at + milliseconds(300), event::Exited{action.host, incarnation, 0,
                                                     workers_[index].ignores_stop ? 9 : 15, false});
    }
  }
  void perform(const action::KillWorkers& action) {
    if (agents_[action.host].deaf) return;
    for (const std::size_t index : job_->hosts()[action.host].workers) {
      schedule(dice_.up_to(100),
               event::Exited{action.host, job_->workers()[index].member.incarnation, 0, 9, false});
    }
  }
  void perform(const action::ShutDownAgent& action) {
    for (const std::size_t index : job_->hosts()[action.host].workers) {
      if (!workers_[index].ended) wrong("an agent was shut down before its workers had ended");
    }
    if (!dice_.one_in(weather_.agent_stays)) {
      schedule(dice_.up_to(50), event::AgentGone{action.host, "left"});
    }
  }
  void perform(const action::DropAgent& action) {
    if (!dice_.one_in(weather_.agent_immortal)) {
      schedule(dice_.up_to(50), event::AgentGone{action.host, "was killed"});
    }
  }
  void perform(const action::Say& action) {
    if (action.text.empty()) wrong("said nothing");
  }
  void perform(const action::Finish& action) { finish_ = action; }

  // ---- what must hold ----

  void check_always() {
    const std::string waits = job_->waiting_for(now_);
    if (waits.empty() != (job_->state() == JobState::finished)) {
      wrong(cat("waits for \"", waits, "\" while ", name_of(job_->state())));
    }
    if (finish_.has_value() != (job_->state() == JobState::finished)) {
      wrong("finished and not finished");
    }
    if (job_->next_deadline() <= now_ && job_->state() != JobState::finished) {
      wrong("a deadline is over and nothing was done");
    }
    if (job_->state() < last_state_) wrong("the job went back");
    last_state_ = job_->state();
    // Only a running program may take for ever.
    if (job_->next_deadline() == kNever && job_->state() != JobState::running &&
        job_->state() != JobState::finished) {
      wrong(cat("no deadline while ", name_of(job_->state())));
    }
  }

  void check_outcome() {
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
    if (!job_->step(event::Tick{}, now_).empty() ||
        !job_->step(event::StopRequested{2}, now_).empty()) {
      wrong("something follows after the end");
    }
  }

  void wrong(const std::string& what) {
    if (wrong_.empty()) wrong_ = what;
  }

  Dice dice_;
  Weather weather_;
  JobOptions options_;
  std::unique_ptr<Job> job_;
  const TimePoint start_{std::chrono::hours(1)};
  TimePoint now_ = start_;
  std::priority_queue<Planned> events_;
  std::uint64_t order_ = 0;
  std::vector<Agent> agents_;
  std::vector<Worker> workers_;
  std::map<HostIndex, bool> agent_comes_;
  int published_ = 0;
  JobState last_state_ = JobState::planned;
  bool some_join_ = false;
  bool all_join_ = false;
  bool somebody_has_joined_ = false;
  bool somebody_is_absent_ = false;  // it ended well and never joined
  std::optional<int> expected_code_;
  std::optional<action::Finish> finish_;
  std::string wrong_;
  std::string story_;
};

long from_environment(const char* name, long otherwise) {
  const char* const text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  return text == nullptr ? otherwise : std::atol(text);
}

void simulate(const Weather& weather, long runs, int max_hosts, int max_slots) {
  const long only = from_environment("HVD_SIMULATION_SEED", -1);
  runs = from_environment("HVD_SIMULATION_RUNS", runs);
  for (long seed = only < 0 ? 0 : only; seed < (only < 0 ? runs : only + 1); ++seed) {
    Simulation simulation(static_cast<std::uint64_t>(seed), weather, max_hosts, max_slots);
    const std::string wrong = simulation.run();
    ASSERT_EQ(wrong, "") << "HVD_SIMULATION_SEED=" << seed << "\n" << simulation.story();
  }
}

TEST(JobSimulation, succeeds_when_nothing_goes_wrong) { simulate({}, 500, 6, 4); }

TEST(JobSimulation, reports_the_first_failure_of_workers_and_launches) {
  Weather weather;
  weather.worker_fails = 10;
  weather.worker_forgets_done = 20;
  weather.some_join = 10;
  weather.launch_fails = 50;
  weather.worker_ignores_stop = 4;
  simulate(weather, 2'000, 6, 4);
}

TEST(JobSimulation, ends_whatever_agents_do) {
  Weather weather;
  weather.agent_never_ready = 20;
  weather.agent_dies = 10;
  weather.agent_lies = 15;
  weather.agent_deaf = 5;
  weather.agent_stays = 5;
  weather.agent_immortal = 5;
  weather.worker_fails = 30;
  weather.worker_hangs = 30;
  weather.worker_ignores_stop = 3;
  simulate(weather, 2'000, 6, 4);
}

TEST(JobSimulation, ends_when_it_is_interrupted_at_any_time) {
  Weather weather;
  weather.interrupts = 1;
  weather.agent_never_ready = 50;
  weather.agent_deaf = 10;
  weather.agent_stays = 10;
  weather.worker_fails = 100;
  weather.worker_hangs = 5;
  weather.worker_ignores_stop = 2;
  simulate(weather, 2'000, 6, 4);
}

TEST(JobSimulation, serves_a_thousand_hosts) {
  Weather weather;
  weather.worker_fails = 20'000;
  weather.agent_dies = 20'000;
  simulate(weather, 3, 1'000, 4);
}

}  // namespace
}  // namespace hvd::driver
