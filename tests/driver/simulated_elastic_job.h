// An elastic job (driver/job/elastic_job.h) against a simulated cluster over virtual time: hosts
// that come and go, fail, are slow, are cut off and come back; discovery that flaps and lies;
// agents that die and lie; workers that crash, are killed, start slowly, are told to go, come to no
// commit, do not leave. For a while anything happens; then nothing does any more, and the job must
// have made the world whole again, and end well when the workers say so. What must hold on the way
// is in elastic_rules.h. A seed reproduces a run. Values for one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <string>
#include <vector>

#include "driver/job/elastic_job.h"
#include "tests/driver/elastic_rules.h"
#include "tests/driver/simulated_job.h"

namespace hvd::driver {

// How bad the world is: of each kind, one fault in so many milliseconds on average; 0 for never.
struct Climate {
  int worker_killed = 0;
  int worker_fails = 0;  // by itself
  int worker_leaves = 0;
  int host_leaves = 0;
  int agent_dies = 0;
  int agent_lies = 0;
  int host_cut_off = 0;
  int discovery_changes = 0;
  int driver_stalls = 0;
  // Of things that are done, one in so many goes wrong.
  int host_fails = 0;
  int launch_fails = 0;
  int launch_hangs = 0;
  int slow_start = 0;
  int stays = 0;  // a worker that should leave, an agent that should
  int killed_at_the_end = 0;
  // May the job fail? Else it must succeed.
  bool may_fail = false;
};

class SimulatedElasticJob {
 public:
  SimulatedElasticJob(std::uint64_t seed, const Climate& climate, int max_hosts, int max_slots);

  std::string run();  // "" if all held
  const std::string& story() const { return story_; }
  int generations() const { return static_cast<int>(job_->generation()); }

 private:
  using milliseconds = std::chrono::milliseconds;
  struct Planned {
    TimePoint at;
    std::uint64_t order;
    std::function<void()> work;
    bool operator<(const Planned& other) const {
      return std::tie(at, order) > std::tie(other.at, other.order);
    }
  };
  struct Machine {
    std::string name;
    int slots = 1;
    bool found = true;
    bool local = false;
    TimePoint cut_off_until{};
  };
  struct Visit {
    std::size_t machine = 0;
    bool ready = false;
    bool gone = false;
    std::vector<Event> outbox;  // while it is cut off
  };
  struct Worker {
    HostIndex host = 0;
    bool alive = false;     // runs
    bool joined = false;    // hvd::init, and ready
    bool stopping = false;  // somebody told it to end
  };

  void schedule(milliseconds after, std::function<void()> work);
  void now_and_then(int mean, const std::function<void()>& work);
  void step(const Event& event);
  // Something that its agent tells, when it can.
  void tell(HostIndex host, const Event& event);
  bool cut_off(HostIndex host) const;
  void plan_faults();
  void cut_off_machine();
  void change_discovery(bool honest);
  void find();
  void beat(HostIndex host);

  std::size_t some_worker();  // alive; workers_.size() if none is
  void end_worker(Incarnation incarnation, int exit_code, int signal);
  void stop_worker(Incarnation incarnation, milliseconds after, int signal);
  void leave(Incarnation incarnation);
  void commit();
  void effective(const WorldDocument& world);
  void settle_down();
  void finish_work();
  void finish(Incarnation incarnation);
  std::string verdict();

  void perform(const action::PublishWorld& action);
  void perform(const action::StartAgent& action);
  void perform(const action::FindAddress& action);
  void perform(const action::ChooseAddresses& action);
  void perform(const action::Launch& action);
  void perform(const action::StopWorkers& action);
  void perform(const action::KillWorkers& action);
  void perform(const action::ShutDownAgent& action);
  void perform(const action::DropAgent& action);
  void perform(const action::Say& /*action*/) {}
  void perform(const action::Finish& /*action*/) {}

  Dice dice_;
  Climate climate_;
  ElasticOptions options_;
  std::unique_ptr<ElasticJob> job_;
  std::unique_ptr<ElasticRules> rules_;
  const TimePoint start_{std::chrono::hours(1)};
  TimePoint now_ = start_;
  TimePoint held_up_until_{};
  std::priority_queue<Planned> plan_;
  std::uint64_t order_ = 0;
  bool calm_ = false;       // no more faults
  bool finishing_ = false;  // workers say that they are done
  std::set<Incarnation> finishers_;

  std::vector<Machine> machines_;
  std::vector<Visit> visits_;  // by HostIndex
  std::map<Incarnation, Worker> workers_;
  WorldDocument world_;  // that the workers are in
  std::map<std::uint64_t, WorldDocument> proposed_;
  std::string story_;
};

}  // namespace hvd::driver
