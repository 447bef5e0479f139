// The workers of a simulated cluster. They decide with the code of real workers: WorldFollower,
// KeptStates, MarkWriter, agree, decide_resume. The wires between them are simulated, and anything
// may happen there: a collective completes on some ranks and fails on others when a member goes, an
// answer is missed, a transfer is cut, and a process dies at any message. The invariants are in
// training_history.h. A value for one thread.
//
// A program trains with a sampler, commits every few steps, and ends after so many. It keeps copies
// or changes its state only inside mutate().
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "driver/job/job_io.h"
#include "tests/support/simulation.h"
#include "tests/worker/elastic/training_history.h"
#include "worker/elastic/kept_states.h"
#include "worker/process/high_water.h"
#include "worker/process/world_follower.h"

namespace hvd {

// Faults in workers and between them, one time in so many; 0 for never. And the kind of program.
struct WorkerClimate {
  int dies_at_message = 0;
  int dies_at = 0;           // this very message of the run
  int dies_again_after = 0;  // so many messages later
  int answer_of_mark_is_lost = 0;
  int slow_message = 0;
  int mutate_is_interrupted = 0;
  int stays = 0;  // a worker that should leave
  int slow_start = 0;
  bool copies = true;
  bool can_load = false;
  // What a worker has kept, if it keeps copies, outlives it with its agent.
  bool agents_keep_state = false;
  int commit_every = 1;  // steps
  int steps = 0;         // after which it is done; 0: when it is told to be
  bool plain = false;    // it knows nothing of hvd, and fails when another of its world does
  int save_fails = 0;    // the state file cannot be written
  int sizes_differ = 0;  // every so many commits the state of a rank has sizes of its own
  int lacks_frozen = 0;  // every so many workers have not loaded the weights that no step changes
};

// A protocol that is wrong on purpose, to see that the simulation finds it.
enum class Flaw {
  none,
  answers_before_the_mark,
  resumes_from_the_lowest,
  ignores_the_mark,
  writes_the_mark_blindly,
  takes_doubt_for_success,
  receives_over_the_only_copy,
  commits_without_agreement,
  takes_half_a_transfer,
  sends_what_the_first_receiver_lacks,
  sends_from_all_holders,
  leaves_before_the_state_is_saved,
  forgets_that_the_run_has_finished,
  // Of the job:
  proposes_the_last_world_once,
  starts_workers_while_suspending,
  forgets_to_stop_what_cannot_be_suspended,
};

// The surroundings of workers: where they run, and the agents that they are connected to.
class Surroundings {
 public:
  virtual ~Surroundings() = default;
  // Through the agent, as soon as its link carries it.
  virtual void tell(driver::HostIndex host, const driver::Event& event) = 0;
  // No process runs there.
  virtual bool frozen(driver::HostIndex host) const = 0;
  // The driver has given up its host, or it had as long to leave as it gets.
  virtual bool given_up(driver::Incarnation worker) const = 0;
  // When the driver, or all others, can be reached from there: now, if nothing is cut.
  virtual TimePoint reaches_driver(driver::HostIndex host) const = 0;
  virtual TimePoint reaches_others(driver::HostIndex host) const = 0;
  // Its agent has a link to a driver. Else it holds its workers until the next one comes.
  virtual bool has_driver(driver::HostIndex host) const = 0;
  virtual bool has_any_driver() const = 0;
  // The driver takes it for one that can start workers.
  virtual bool is_usable(driver::HostIndex host) const = 0;
  // The number of the newest driver. What was sent to one before reaches nobody.
  virtual std::uint64_t driver() const = 0;
};

class SimulatedWorkers {
 public:
  using Incarnation = driver::Incarnation;

  SimulatedWorkers(Surroundings& surroundings, VirtualTime& time, Dice& dice,
                   const WorkerClimate& climate, TrainingHistory& history, Flaw flaw)
      : surroundings_(surroundings),
        time_(time),
        dice_(dice),
        climate_(climate),
        history_(history),
        flaw_(flaw) {}

  // An agent starts one; `is_member`: of the first world. An incarnation may end before it runs.
  void start(Incarnation incarnation, driver::HostIndex host, bool is_member);
  // The newest commit that the agent has for the next worker, as text; empty: none.
  std::string kept_by_agent(driver::HostIndex host) const;
  // The process ends now; its agent says so if it can. `in_peace`: as it was asked to.
  void die(Incarnation incarnation, int exit_code, int signal, bool in_peace = false);
  // It is asked to end, and no other has failed: another has the committed state.
  void check_heirs(Incarnation incarnation);
  // It calls shutdown() although the work is not done: it says so, and takes part in nothing any
  // more. Its process lives until it is ended. False: it has nothing to leave.
  bool leave_early(Incarnation incarnation);
  // It gets no processor any more.
  void stop(Incarnation incarnation) { of(incarnation).stopped = true; }
  void thawed(driver::HostIndex host);
  void hear(const WorldDocument& world);
  // The agent of this host has lost its driver, and says so to its workers.
  void lost_driver(driver::HostIndex host);
  // Another driver goes on: its rendezvous knows of no mark but this, `effective` is in force, and
  // agents will tell that when they are found.
  void driver_came(CommitId mark, const WorldDocument& effective);
  // The agent of this host has found that driver. It says its mark, and hears these worlds.
  void found_driver(driver::HostIndex host, const WorldDocument& effective,
                    const std::optional<WorldDocument>& proposed);
  // In the rendezvous.
  CommitId mark() const { return mark_; }
  // The driver writes the mark.
  void void_commits(std::uint64_t generation);
  // Nothing goes wrong any more.
  void calm();
  // All are done a few steps from now.
  void finish();

  bool runs(Incarnation incarnation) const;
  // A worker has come to the end of the work with all others of its world.
  bool is_work_done() const { return is_work_done_; }
  // Of a program that knows nothing of hvd: it began with that world.
  bool began_with(Incarnation incarnation, std::uint64_t generation) const {
    return runs(incarnation) && of(incarnation).begun_with == generation;
  }
  bool joined(Incarnation incarnation) const { return runs(incarnation) && of(incarnation).joined; }
  bool trains_in(Incarnation incarnation, std::uint64_t generation) const;
  // It ends by itself as soon as it can.
  bool is_leaving(Incarnation incarnation) const { return of(incarnation).leaving; }
  bool stays(Incarnation incarnation) const { return of(incarnation).stays; }
  std::vector<Incarnation> running() const;
  driver::HostIndex host_of(Incarnation incarnation) const { return of(incarnation).host; }
  std::string text(Incarnation incarnation) const;

 private:
  // The current activity of the worker, or the event that it waits for.
  enum class Phase {
    starting,
    between,  // for a world
    connecting,
    voting,
    comparing,
    receiving,
    computing,
    reducing,
    mutating,
    copying,
    preparing,
    marking,
    awaiting,       // the answer
    saving,         // rank 0, at the last commit
    awaiting_save,  // the others
    suspending,     // all know that the state is saved
    finishing,      // its function has returned
    marking_end,
    shutting_down,  // all know that it is marked
    evaluating,     // the run is over, and its program goes on by itself
    done,
  };
  struct Answer {
    CommitId id;
    std::optional<WorldDocument> next;
  };
  struct Process {
    Incarnation incarnation = 0;
    driver::HostIndex host = 0;
    bool runs = false;
    bool ended = false;
    bool fell = false;             // it ended without being asked to
    bool member = false;           // of the first world
    std::uint64_t begun_with = 0;  // of a plain program: the generation that it knows
    bool joined = false;
    bool leaving = false;
    bool stays = false;
    bool stopped = false;
    std::vector<std::function<void()>> pending;  // while it is frozen

    Phase phase = Phase::starting;
    std::uint64_t turn = 0;  // what was planned in an earlier one is void
    std::optional<worker::WorldFollower> follower;
    worker::KeptStates states;
    std::array<int, 2> kept{TrainingHistory::kNothing, TrainingHistory::kNothing};
    int live = TrainingHistory::kNothing;
    CommitId ever_whole;      // and not spoiled since by itself
    std::uint64_t sizes = 0;  // of the newest whole state: as a digest
    bool has_frozen = true;   // in its own objects, before it has a whole state

    std::uint64_t finished = 0;  // the world in which all had come to the end
    std::uint64_t group = 0;     // the generation that it is connected with; 0: none
    int rank = 0;
    std::size_t op = 0;
    bool broken = false;  // a peer is gone; it notices when it next looks
    worker::Resume resume;
    int chunks = 0;  // of the state that it receives
    int received = TrainingHistory::kNothing;
    std::uint64_t received_sizes = 0;
    int next_state = TrainingHistory::kNothing;
    std::optional<Answer> answer;
    std::optional<WorldDocument> last;  // the world that is suspended at this commit
    std::optional<bool> is_saved;       // as rank 0 says
    std::optional<worker::MarkWriter> mark;
    std::optional<std::uint64_t> mark_version;
    bool driver_is_gone = false;  // as its agent says
    CommitId known_mark;          // which the agent has as soon as there is no driver
  };
  // The newest state that a worker had whole.
  struct Kept {
    CommitId id;
    int state = TrainingHistory::kNothing;
    std::uint64_t sizes = 0;
  };
  // The contribution of a rank to a collective.
  struct Said {
    bool said = false;
    worker::Vote vote;
    CommitId mark;
    worker::Prepared prepared;
    bool has_frozen = true;
    int state = TrainingHistory::kNothing;
  };
  struct Op {
    std::vector<Said> said;
    std::size_t count = 0;
  };
  // The members of a world, connected.
  struct Group {
    std::vector<Incarnation> members;
    std::vector<bool> gone;
    std::deque<Op> ops;
    std::size_t first_op = 0;
    std::set<Incarnation> at_work;  // they have taken a step
  };

  Process& of(Incarnation incarnation) { return *processes_[incarnation - 1]; }
  const Process& of(Incarnation incarnation) const { return *processes_[incarnation - 1]; }

  // simulated_workers.cpp: processes and wires
  using Work = void (SimulatedWorkers::*)(Process&);
  void deliver(Incarnation to, Duration after, std::function<void(Process&)> work);
  void then(Process& process, Duration after, Work work);  // if it is still in this turn
  void begin(Process& process);
  bool leaves_with_agent(const Process& process, bool in_peace);
  void take_from_agent(Process& process);
  void run_plain(Process& process);
  void end_plain(Process& process);
  void fail_the_others_of(const Process& lost);
  void hear(Process& process, const WorldDocument& world);
  void tell(const Process& process, const char* what) const;
  bool message(Process& process);  // false: it died there
  Duration wire_time();
  Duration some(int microseconds) { return std::chrono::microseconds(dice_.below(microseconds)); }
  void say_in_collective(Process& process, Phase phase, Said said);
  void complete(Incarnation incarnation, std::uint64_t generation, std::size_t op);
  void leave_group(Process& process);
  void close(std::uint64_t generation, Incarnation incarnation, bool in_order);
  // All members of this world had come to the end of the work.
  bool has_finished(std::uint64_t generation) const {
    return mark_.run == 1 && mark_.generation == generation;
  }
  void lost_a_peer(Process& process);
  void ask_mark(Process& process, std::function<void(Process&)> back,
                std::function<void(Process&)> lost, std::function<void()> at_server);
  void say_driver_is_gone(Process& process, bool gone);
  void keep_mark(Process& process, CommitId id);
  void send_mark(const Process& process, CommitId id);
  void raise_mark(CommitId id);
  // In the rendezvous, or with an agent or a worker for the next one.
  CommitId mark_anywhere() const;

  // training_worker.cpp: the program
  void go_on(Process& process);
  void enter(Process& process, const WorldDocument& world);
  void leave(Process& process);
  void completed(Process& process, const Op& op);
  void vote(Process& process);
  void voted(Process& process, const Op& op);
  void compared(Process& process, const Op& op);
  void send_state(Process& process);
  void take_part(Process& process, int state, std::uint64_t sizes);
  void take_state(Process& process);
  void restore(Process& process);
  void train(Process& process);
  void reduce(Process& process);
  void mutate(Process& process);
  void mutated(Process& process);
  void step_ended(const Process& process);
  void copied(Process& process);
  void prepare(Process& process);
  void prepared(Process& process, const Op& op);
  void write_mark(Process& process);
  void mark_with_agent(Process& process);
  void decide(Process& process);
  void act_on_answer(Process& process);

  // finished_worker.cpp: the end of the work
  void finish(Process& process);
  void mark_end(Process& process);
  void end_well(Process& process);
  void say_done(Process& process);
  void come_too_late(Process& process);
  void exit_well(Process& process);

  // suspended_worker.cpp: the last commit
  void suspend(Process& process);
  void save(Process& process);
  void told_of_save(Process& process, bool is_saved);
  void meet_to_leave(Process& process);
  void leave_at_last_commit(Process& process);

  int whole_state(const Process& process) const;
  std::uint64_t sizes_at_commit(const Process& process) const;
  void check_loss(const Process& process);
  bool is_newest_held() const;

  Surroundings& surroundings_;
  VirtualTime& time_;
  Dice& dice_;
  WorkerClimate climate_;
  TrainingHistory& history_;
  const Flaw flaw_;

  std::deque<std::unique_ptr<Process>> processes_;  // by incarnation
  std::map<std::uint64_t, Group> groups_;           // by generation
  std::optional<WorldDocument> effective_;          // the newest, for those that start
  std::optional<WorldDocument> proposed_;
  bool plain_ends_ = false;  // the work of a plain program is done
  bool is_work_done_ = false;
  int messages_ = 0;
  // In the rendezvous.
  CommitId mark_;
  std::uint64_t mark_version_ = 0;
  std::map<driver::HostIndex, std::vector<Kept>> agent_memory_;  // that no worker has
  std::map<driver::HostIndex, CommitId> agent_marks_;            // made without a driver
};

}  // namespace hvd
