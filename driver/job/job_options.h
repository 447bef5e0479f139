// All that a job begins with: what it is, its policy, its settings, its workers. Values.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/protocol/world_document.h"
#include "driver/job/plan.h"
#include "driver/job/slot_budget.h"
#include "driver/job/staffing.h"

namespace hvd::driver {

// The length of a job's id, in lower-case hexadecimal digits. The id is not a secret.
inline constexpr std::size_t kJobIdDigits = 16;

// The facts about a job that never change.
struct JobIdentity {
  std::string id = {};
  int pid = 0;  // of hvdrun
  std::vector<std::string> command = {};
  std::string directory = {};
  bool elastic = false;
  std::chrono::system_clock::time_point started = {};
  std::string data_security = "none";  // of tensors between hosts, as --data-security names it
};

// How a job differs from the general one.
struct JobPolicy {
  // Hosts come and go, each on its own. Otherwise they are a list: all of them are made ready
  // together, and a host that cannot take part ends the job.
  bool discovers_hosts = true;
  // A worker that fails costs its slot a restart. Otherwise it ends the job.
  bool restarts_workers = true;
  // A loss or a newcomer leads to another world. Otherwise the first world is the only one.
  bool changes_world = true;

  static constexpr JobPolicy elastic() { return {}; }
  static constexpr JobPolicy fixed() { return {false, false, false}; }
};

struct ElasticOptions {
  Limits limits;
  int processes = 0;  // the first world should have; 0: as many as there is room for
  BudgetOptions budget;
  int reset_limit = -1;          // effective worlds because of losses; -1: no limit
  int planned_reset_limit = -1;  // planned ones; beyond it the world grows no more
  // While no worker has called hvd::init(): how often all are started again because one failed; -1:
  // as often as the budget of the slots allows.
  int max_restarts = -1;
  std::chrono::milliseconds grow_delay{30'000};  // before the world grows by starting all again
  std::chrono::milliseconds elastic_timeout{600'000};  // for there to be enough workers
  // From the wish that a worker leaves to its leaving at a commit, and from that to its exit.
  std::chrono::milliseconds leave_grace{30'000};
  // Events within this time are one change: losses, and joiners that get warm while others are
  // still coming.
  std::chrono::milliseconds loss_gather{5};
  // A worker that leaves may end before somebody else tells of the commit at which it left.
  std::chrono::milliseconds leave_gather{1'000};
  std::chrono::milliseconds join_gather{200};
  std::uint64_t jitter_seed = 0;  // spreads the rests of hosts
  // The hosts are a list that does not change and names some without slots: when each of them has
  // said how many it has, the list is checked, and gets room for `processes`, as one with numbers
  // is before the job begins.
  bool plan_list = false;
  bool hosts_are_fixed = false;  // a list: no host will ever come
  bool oversubscribe = true;
  // If all workers are told to go, and nobody is there to take the state over, the job is
  // suspended: its whole allocation is being taken away.
  bool suspends_when_all_go = false;
  // A member for which the others wait leaves at a commit, if another one can take its place.
  bool replaces_slow = false;
  // The agents have what their workers have committed: when all members are lost, others go on.
  bool keeps_state_in_agents = false;
};

struct JobOptions {
  std::string job_id;
  // A Tick comes at least as often, while this process runs; if none does, it is held up. 0: it
  // never is.
  std::chrono::milliseconds pace{0};
  std::chrono::milliseconds grace{5'000};
  // For each step of a host to being ready, for the choice of addresses, and then for all workers
  // of a host to run.
  std::chrono::milliseconds start_timeout{30'000};
  // Hosts that are out of reach are told one by one; those that come within this time of the first
  // are told together.
  std::chrono::milliseconds gather_time{100};
  // Silence of an agent for this long is taken for the loss of its host; 0: never.
  std::chrono::milliseconds heartbeat_timeout{0};
  // Silence of all for this long is theirs and no longer ours; 0: never.
  std::chrono::milliseconds orphan_timeout{30'000};
  // For workers that live to call hvd::init() when others have; 0: for ever.
  std::chrono::milliseconds init_timeout{3'600'000};
  // Names of those hosts whose agents are children of hvdrun.
  std::vector<std::string> local_hosts;
  // Beyond the grace, for the agents to kill what ignored it and to report.
  std::chrono::milliseconds stop_margin{2'000};
  // For killed workers to be reported.
  std::chrono::milliseconds kill_timeout{5'000};
  // For an agent to clean up and leave.
  std::chrono::milliseconds close_timeout{5'000};
  // For an agent that was given up to be gone.
  std::chrono::milliseconds drop_timeout{5'000};
  // Options of a job whose hosts and world change.
  ElasticOptions elastic;
};

class Job;

struct JobStart {
  struct Elastic {};
  // An elastic job finds its workers. The workers of a static job are planned, now or when the
  // slots of its hosts are known.
  using Workers = std::variant<Elastic, std::vector<WorldMember>, PlanRequest>;

  JobOptions options;
  Workers workers;

  std::unique_ptr<Job> make() const;
};

}  // namespace hvd::driver
