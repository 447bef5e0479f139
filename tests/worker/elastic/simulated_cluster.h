// An elastic job (driver/job/job.h) and its workers (simulated_workers.h) in a simulated
// cluster over virtual time: hosts that come and go, fail, are slow, are cut off and come back, or
// not in time; leases, which freeze the workers of a host that is cut off; discovery that flaps and
// lies; all workers are replaced; people drain hosts and scale the job; agents that die and
// lie; workers that crash, are killed or stopped, start slowly, are told to go, do not leave; a
// driver that is held up, or dies and is followed by another one. For a while anything happens;
// then nothing does any more, and the world must become whole again, train on, and end well when
// its work is done.
//
// The invariants are in tests/driver/job/elastic_rules.h for the driver, and in
// training_history.h for the workers. A seed reproduces a run. A value for one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "driver/job/job.h"
#include "driver/run/takeover.h"
#include "tests/driver/job/elastic_rules.h"
#include "tests/driver/journal/kept_journal.h"
#include "tests/worker/elastic/simulated_workers.h"

namespace hvd {

// How bad the world is: of each kind, one fault in so many milliseconds on average; 0 for never.
struct Climate {
  int worker_killed = 0;
  int all_killed = 0;    // all workers at once
  int worker_fails = 0;  // by itself
  int worker_stopped = 0;
  int worker_leaves = 0;
  int worker_leaves_early = 0;  // it calls shutdown(), or ends with 0
  int host_leaves = 0;
  int agent_dies = 0;
  int agent_lies = 0;
  int host_cut_off = 0;
  int discovery_changes = 0;
  int everybody_is_replaced =
      0;  // half of the machines by the others, or all workers are told to go
  int driver_stalls = 0;
  int driver_dies = 0;
  int host_drained = 0;  // or a drained one is used again
  int job_scaled = 0;
  int worker_is_slow = 0;  // or is slow no longer; slow ones are replaced
  // Of things that are done, one in so many goes wrong.
  int driver_dies_in_step = 0;  // with a part of its actions done
  int driver_stays_away = 0;    // for longer than agents hold their workers
  int host_fails = 0;
  int launch_fails = 0;
  int launch_hangs = 0;
  int slow_start = 0;
  int agent_stays = 0;
  int killed_at_the_end = 0;
  int killed_while_replaced = 0;
  // hvdrun is asked to suspend the job within so many milliseconds; 0 for never. And of such
  // requests, one in so many is followed by a second one.
  int suspended_within = 0;
  int suspended_twice = 0;
  bool suspends_when_all_go = false;
  int leave_grace = 600;
  // A slot, or all of a machine, in which every worker fails.
  enum class Broken { nothing, slot, machine } broken = Broken::nothing;
  bool breaks_late = false;  // when it has been in the world for a while; else before it joins
  WorkerClimate workers;
  // May the job fail? Else it must succeed.
  bool may_fail = false;
};

class SimulatedCluster : private Surroundings {
 public:
  SimulatedCluster(std::uint64_t seed, const Climate& climate, int max_hosts, int max_slots,
                   Flaw flaw = Flaw::none);

  // Keeps what happens as text, which takes time.
  void tell_story() { history_.tell_story(); }
  std::string run();  // "" if all held
  const std::string& story() const { return history_.story(); }
  int generations() const { return static_cast<int>(job_->generation()); }
  int commits() const { return history_.commits(); }
  bool succeeded() const { return rules_->finished() && rules_->finish().exit_code == 0; }
  bool suspended() const { return rules_->finished() && rules_->finish().suspended; }

 private:
  using milliseconds = std::chrono::milliseconds;
  using HostIndex = driver::HostIndex;
  using Incarnation = driver::Incarnation;
  struct Machine {
    std::string name;
    int slots = 1;
    bool open = false;  // only its agent says how many they are
    bool found = true;
    bool local = false;
    std::vector<bool> broken = {};  // by slot
    TimePoint cut_off_until{};
    bool cut_off_from_all = false;  // else only from the driver
    TimePoint lease_ends = kNever;
  };
  struct HostSession {
    std::size_t machine = 0;
    bool assigned = false;  // the agent was started
    bool ready = false;
    bool gone = false;
    bool beats = false;
    bool linked = true;                  // with the newest driver
    std::vector<driver::Event> outbox;   // while it is cut off
    std::vector<driver::Event> reports;  // all of its agent: the next driver hears them again
    TimePoint holds_until = kNever;      // while it has no driver
  };
  // Of a worker, as its agent knows it.
  struct Started {
    HostIndex host = 0;
    bool asked_for = false;
    bool launched = false;
    bool stopping = false;
  };

  void tell(HostIndex host, const driver::Event& event) override;
  bool frozen(HostIndex host) const override;
  bool given_up(Incarnation incarnation) const override;
  TimePoint reaches_driver(HostIndex host) const override;
  TimePoint reaches_others(HostIndex host) const override;
  bool has_driver(HostIndex host) const override {
    return !driver_is_dead_ && sessions_[host].linked;
  }
  bool has_any_driver() const override { return !driver_is_dead_; }
  bool is_usable(driver::HostIndex host) const override {
    return !driver_is_dead_ && !takeover_ &&
           job_->hosts()[host].state == driver::HostState::ready && !sessions_[host].gone &&
           !is_cut_off(host);
  }
  std::uint64_t driver() const override { return driver_; }

  void schedule(milliseconds after, std::function<void()> work) {
    time_.after(after, std::move(work));
  }
  bool is_over() const { return rules_->finished() || !wrong().empty(); }
  const std::string& wrong() const {
    return rules_->wrong().empty() ? history_.wrong() : rules_->wrong();
  }
  std::string verdict();
  std::string verdict_on(const driver::action::Finish& finish) const;

  // What a driver has begun ends with it.
  void schedule_for_driver(milliseconds after, std::function<void()> work) {
    schedule(after, [this, driver = driver_, work = std::move(work)] {
      if (driver == driver_ && !driver_is_dead_) work();
    });
  }
  // Whether something that was sent to this host's agent, by that driver, comes there.
  bool arrives(HostIndex host, std::uint64_t driver);

  // simulated_cluster.cpp: the driver, its hosts and its words
  void to_driver(const driver::Event& event);
  void step(const driver::Event& event);
  void find();
  void beat(HostIndex host);
  bool is_cut_off(HostIndex host) const { return reaches_driver(host) > time_.now(); }
  Machine& machine_of(HostIndex host) { return machines_[sessions_[host].machine]; }
  void kill_all_on(HostIndex host, milliseconds within);
  void stop_worker(Incarnation incarnation, milliseconds after, int signal, bool in_peace = false);
  void choose_limits();
  void break_something();
  static int good_slots(const Machine& machine);

  // cluster_takeover.cpp
  void record(const driver::Event& event, const std::vector<driver::Action>& actions);
  void lose_driver();
  void end_if_held_too_long(HostIndex host);
  void take_over();
  void relive();
  void find_agent(HostIndex host);
  void look_for_agent(HostIndex host);
  void agent_found(HostIndex host);
  std::optional<driver::Event> after_takeover(const driver::Event& event);
  void say_which_are_looked_for();

  // cluster_calm.cpp
  void settle_down();
  void look_whether_whole();
  void ask_for_all();
  int whole_size(int left_out) const;
  bool is_whole_group() const;
  bool is_whole() const;
  void finish_work();

  // cluster_suspension.cpp
  void plan_suspension();
  void ask_for_suspension_again();
  void look_whether_it_ends();
  void spoil(std::vector<driver::Action>& actions);
  std::string verdict_on_suspension(const driver::action::Finish& finish) const;

  void perform(const driver::action::PublishWorld& action);
  void perform(const driver::action::StartAgent& action);
  void perform(const driver::action::FindAddress& action);
  void perform(const driver::action::VoidCommits& action) {
    voided_ = action.generation;
    workers_.void_commits(action.generation);
  }
  void perform(const driver::action::PlanStands& action);
  void perform(const driver::action::ChooseAddresses& action);
  void perform(const driver::action::Launch& action);
  void perform(const driver::action::StopWorkers& action);
  void perform(const driver::action::KillWorkers& action);
  void perform(const driver::action::DescribeWorker& action);
  void perform(const driver::action::ShutDownAgent& action);
  void perform(const driver::action::DropAgent& action);
  void perform(const driver::action::Say& /*action*/) {}
  void perform(const driver::action::Answer& /*action*/) {}
  void perform(const driver::action::Finish& /*action*/) {}

  // cluster_faults.cpp
  void plan_faults();
  void now_and_then(int mean, const std::function<void()>& work);
  void on_some_worker(const std::function<void(Incarnation)>& work);
  void on_some_session(const std::function<void(HostIndex)>& work);
  void cut_off_machine();
  void heal(std::size_t machine);
  bool is_linked(std::size_t machine) const;
  void stall();
  void change_discovery();
  void replace_everybody();
  void swap_machines();
  void drain_or_undo();
  void scale();

  Dice dice_;
  VirtualTime time_;
  Climate climate_;
  const Flaw flaw_;
  TrainingHistory history_;
  SimulatedWorkers workers_;
  driver::JobOptions options_;
  std::unique_ptr<driver::Job> job_;
  std::optional<driver::KeptJournal> journal_;
  std::unique_ptr<driver::ElasticRules> rules_;
  std::uint64_t in_force_ = 0;
  bool asks_for_suspension_ = false;
  bool watches_suspension_ = false;
  std::optional<driver::action::Launch> launched_;  // for a flaw
  bool has_proposed_last_ = false;                  // likewise
  bool calm_ = false;                               // no more faults
  bool asks_for_all_ = false;                       // then: a person does, of a plain program
  bool finishing_ = false;                          // workers end soon
  TimePoint whole_by_ = kNever;
  int commits_before_calm_ = 0;
  TimePoint held_up_until_{};
  std::vector<driver::Event> waiting_;  // for the driver, while it is held up

  // The journal. The first `kept_` steps are on the disk for sure.
  struct Recorded {
    driver::Event event;
    TimePoint at;
    std::size_t actions = 0;
  };
  std::vector<Recorded> steps_;
  std::size_t kept_ = 0;
  CommitId kept_mark_;        // likewise
  std::uint64_t driver_ = 1;  // the epoch
  bool driver_is_dead_ = false;
  std::optional<driver::Takeover> takeover_;
  bool repeats_ = false;  // what the driver before has asked for
  std::uint64_t voided_ = 0;
  std::map<std::uint64_t, std::string> published_;  // by generation: members
  std::optional<driver::event::WorldEntered> entered_;

  std::vector<Machine> machines_;
  std::vector<HostSession> sessions_;  // by HostIndex
  std::vector<Started> started_;       // by incarnation
};

}  // namespace hvd
