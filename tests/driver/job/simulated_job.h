// A job (driver/job/job.h) against simulated hosts over virtual time: hosts that are slow to
// connect, fail or never answer; agents that die, lie, do not kill and do not leave; links that are
// silent for a while or for ever, one or all at once; a driver that is held up, or that is so busy
// that it hears late what arrived long ago; workers that fail,
// hang, ignore signals; people who press Ctrl-C. A seed reproduces a run. The invariants are in
// tests/driver/job/job_rules.h. Values for one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "driver/job/job.h"
#include "tests/driver/job/job_rules.h"
#include "tests/driver/journal/kept_journal.h"
#include "tests/driver/metrics/kept_metrics.h"
#include "tests/support/simulation.h"

namespace hvd::driver {

// How bad the world is: one chance in so many, 0 for never.
struct Weather {
  int host_fails = 0;  // on its way to being ready
  int host_has_no_turn = 0;
  int agent_never_ready = 0;
  int unreachable = 0;   // a host, when addresses are chosen
  int no_addresses = 0;  // nobody chooses any
  int agent_dies = 0;
  int agent_lies = 0;
  int agent_deaf = 0;      // to stop and kill
  int agent_stays = 0;     // does not leave when told
  int agent_immortal = 0;  // cannot be dropped
  int silence = 0;         // a host
  int blackout = 0;        // one of so many runs: all other machines at once
  int stalls = 0;          // one of so many runs: the driver is held up once or more
  int busy = 0;            // one of so many runs: the driver takes long to hear what has arrived
  int launch_fails = 0;
  int worker_fails = 0;
  int worker_forgets_done = 0;
  int some_join = 0;     // one of so many runs: only some of its workers call hvd::init
  int worker_hangs = 0;  // never ends by itself
  int worker_ignores_stop = 0;
  int interrupts = 0;  // one of so many runs; then one to three signals
  int requests = 0;    // one of so many runs: somebody wants to drain a host and to scale the job
};

class SimulatedJob {
 public:
  SimulatedJob(std::uint64_t seed, const Weather& weather, int max_hosts, int max_slots);

  // Runs to the end, or to the first thing that does not hold; "" if all did.
  std::string run();
  const std::string& story() const { return story_; }

 private:
  using milliseconds = std::chrono::milliseconds;
  // As it is there, whatever the driver knows of it.
  struct Agent {
    bool ready = false;
    bool gone = false;  // or its link is: no more messages of it will come
    bool deaf = false;
    TimePoint busy_until{};            // what it reports, it reports in order
    TimePoint cut_off_since = kNever;  // kNever: it is not
    TimePoint cut_off_until{};
    TimePoint well_since{};                    // its words reach this machine
    int unread = 0;                            // its messages that the driver has not read yet
    std::vector<Event> outbox;                 // while it is cut off
    std::vector<std::function<void()>> inbox;  // likewise
  };
  struct Worker {
    bool runs = false;
    bool ended = false;
    bool ignores_stop = false;
  };

  void plan_interrupts();
  void plan_requests();
  void plan_network_faults();
  void schedule(milliseconds after, std::function<void()> work);
  void cut_off(HostIndex host, milliseconds after, milliseconds duration);
  void heal(HostIndex host);
  // Something happens on a host; the driver learns of it when it can.
  void happen(HostIndex host, const Event& event);
  void report(HostIndex host, milliseconds after, Event event);  // in order with what was before
  void reach(HostIndex host, std::function<void()> work);        // an order of the driver
  void beat(HostIndex host);
  // The driver looks at all links before it lets time count.
  void tick();
  void check_that_no_healthy_host_is_lost();
  bool is_possible(const Event& event);
  Worker& worker(Incarnation incarnation) { return workers_[job_->index_of(incarnation)]; }

  void step(const Event& event);
  void bring_agent(HostIndex host);
  void run_worker(HostIndex host, Incarnation incarnation);

  void perform(const action::PublishWorld& action);
  void perform(const action::StartAgent& action);
  void perform(const action::PlanStands& /*action*/) { workers_.resize(job_->workers().size()); }
  void perform(const action::ChooseAddresses& action);
  void perform(const action::FindAddress& /*action*/) {}  // of elastic jobs
  void perform(const action::VoidCommits& /*action*/) {}  // likewise
  void perform(const action::Launch& action);
  void perform(const action::StopWorkers& action);
  void perform(const action::KillWorkers& action);
  void perform(const action::DescribeWorker& action);
  void perform(const action::ShutDownAgent& action);
  void perform(const action::DropAgent& action);
  void perform(const action::Say& action);
  void perform(const action::Answer& action);
  void perform(const action::Finish& action);

  Dice dice_;
  Weather weather_;
  JobOptions options_;
  std::unique_ptr<Job> job_;
  std::optional<KeptJournal> journal_;
  std::optional<KeptMetrics> metrics_;
  std::unique_ptr<JobRules> rules_;
  VirtualTime time_;
  std::vector<bool> local_;
  std::vector<int> slots_;  // by host, as an agent counts them
  std::vector<Agent> agents_;
  std::vector<Worker> workers_;
  bool busy_ = false;
  bool some_join_ = false;
  bool all_join_ = false;
  std::string story_;
};

}  // namespace hvd::driver
