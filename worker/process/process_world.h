// The one world of this process: what init() makes and shutdown() ends; in an elastic job one after
// the other (process_generations.cpp). All calls are safe from any thread. It is never destroyed,
// since threads may still use it while the process ends.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <hvd/hvd.h>

#include "base/protocol/worker_link.h"
#include "base/protocol/world_document.h"
#include "base/status.h"
#include "rendezvous/client.h"
#include "runtime/control/world.h"
#include "runtime/core/work_meter.h"
#include "worker/launch/launcher_store.h"
#include "worker/process/agent_channel.h"
#include "worker/process/current_world.h"
#include "worker/process/entry_timer.h"
#include "worker/process/high_water.h"
#include "worker/process/membership.h"
#include "worker/process/save_meter.h"
#include "worker/process/set_table.h"
#include "worker/process/settings.h"
#include "worker/process/world_teardown.h"

namespace hvd::worker {

// From the announcement of a stop to its signal, which the agent sends after kLastWordsTimeout if
// this process does not answer the question that comes with the announcement.
inline constexpr auto kSignalGrace = 2 * worker_link::kLastWordsTimeout;
// For what is in flight in a world that has failed: milliseconds, unless an event never comes.
inline constexpr std::chrono::seconds kInFlightTimeout{10};

inline constexpr std::uint64_t kFirstGeneration = 1;

// Counts how often each generation of a static job was joined.
class RoundCounter {
 public:
  std::uint64_t next(std::uint64_t generation) {
    if (std::exchange(generation_, generation) != generation) round_ = 0;
    return ++round_;
  }

 private:
  std::uint64_t generation_ = 0;
  std::uint64_t round_ = 0;
};

// The generation that this process has formed last, or tries to.
struct FormedGeneration {
  // `keeper`: null without a client.
  void begin(std::uint64_t generation, std::shared_ptr<rendezvous::Client> of_generation = nullptr,
             MarkKeeper* keeper = nullptr);

  std::uint64_t number = 0;
  std::shared_ptr<rendezvous::Client> client;  // null in a world of one process
  std::shared_ptr<HighWater> high_water;
};

// How this process is about to part from the job.
struct Departure {
  bool leaving = false;   // shutdown() was called, and init() not since
  bool finished = false;  // all ranks' functions have returned
  bool is_told = false;   // the agent knows that this process takes no part any more
  std::atomic<bool> program_ends = false;
};

class RendezvousExchange;

class ProcessWorld {
 public:
  static ProcessWorld& instance();

  // Throws InvalidArgumentError if there is a world that was made with other options.
  Status init(const InitOptions& options);
  // Leaves the world, if there is one. Throws InvalidArgumentError on a thread of hvd.
  void shutdown();
  bool is_initialized() const;
  // To be called before the failure of a world is thrown on. In a static job it gives hvdrun a
  // moment to stop the job because of what happened to another rank: if this rank ended first, it
  // would be taken for the cause. In an elastic one the program goes on, and perhaps frees memory
  // that is still in flight: nothing is when this returns.
  void before_failure_is_thrown();
  // The exception that a call throws for this failure; HostsUpdated if the world ended as planned.
  // While elastic::run runs, a call that a rank which has left early would have to take part in
  // ends this world: the others need one without it.
  std::exception_ptr exception_of(const runtime::Failure& failure, runtime::Kind kind) const;
  // Nothing before init() and after shutdown().
  std::shared_ptr<runtime::World> world() const;
  // The same; throws instead of returning nothing: NotInitializedError, which names the call;
  // between two worlds why the last one ended. A joining worker waits here for its first.
  std::shared_ptr<runtime::World> world_for(std::string_view call);
  // The same for a collective. Throws InvalidArgumentError, too, if this worker has come to a job
  // under way and is in no run with the others yet: none of them would answer.
  std::shared_ptr<runtime::World> world_for_collective(std::string_view call);
  bool has_dynamic_sets() const;
  Place place_for(std::string_view call);
  // For a worker that has no world yet, its slot on this host.
  int local_rank();
  // "allreduce.noname.0", then 1, ...: counted anew by each init().
  std::string next_name(const CallSeries& series);
  // The call was refused before any rank was asked (CallName).
  void return_name(const CallSeries& series, std::string_view name);
  // From 0 again: all have joined, after however many calls each.
  void restart_names();

  // ---- process sets of elastic jobs; of others these do nothing ----

  // Throws ProcessSetError, which names the call, if the set has lost a member.
  void check_set(std::string_view call, int id) const;
  std::optional<int> take_up_set(const std::vector<int>& ranks, bool by_members);
  void let_set_shrink(int id);
  bool forget_lost_set(int id);

  // ---- elastic jobs ----

  // A world, and where its commits are written down.
  struct Generation {
    std::uint64_t number = 0;
    std::shared_ptr<runtime::World> world;
    std::shared_ptr<HighWater> high_water;
    std::uint64_t finished_runs = 0;  // by this process: the number of the run under way
  };
  // Throws as world_for().
  Generation generation_for(std::string_view call);
  // Of the world that is or was the last one; its number alone, so that it may have failed.
  std::uint64_t newest_generation() const;
  // Null in a static job, and before init().
  Membership* membership() const;
  // Instead of init(): no world is formed, membership() says which there are.
  Status follow();
  Membership* followed() const;  // null before that
  // Leaves the world that has ended, and enters the next one. failed_precondition: no
  // newer world has this worker in it.
  Status enter_next();
  // There is a world, and nothing has ended it.
  bool stands() const;
  // init() was called, and this worker was in no world yet.
  bool is_joining() const;
  // This worker was in a world, which has ended.
  bool needs_next() const;
  // Measures the way into each world.
  EntryTimer& entry_timer() { return entry_timer_; }
  SaveMeter& save_meter() { return save_meter_; }
  // The state is in place, and this rank is in the same run as the others: the program takes its
  // first step in this world.
  void expect_first_step();
  // The steps of the program so far, in all its worlds, as far as names of tensors tell.
  std::uint64_t steps() const { return meter_->read(runtime::trace::nanoseconds_now()).steps; }
  // How many calls of elastic::run have returned on all ranks, as far as this process knows.
  std::uint64_t finished_runs() const;
  // The memory in which the state of a run lies, if the agent holds any for this process and no
  // other run has it.
  UniqueFd take_state_memory();
  void return_state_memory(UniqueFd memory);
  // elastic::run begins and ends.
  void begin_run();
  void end_run();
  // shutdown() was called, perhaps by the end of the program, and init() not since.
  bool is_leaving() const;
  // The program ends: a thread that does not end it has nothing more to do.
  bool program_ends() const { return departure_.program_ends; }
  // All ranks' functions have returned: shutdown() says that the work is done, whatever happens to
  // the world until then and unless another run begins.
  void finish_run();
  // They had returned before this process came, and the others are in a later run.
  void skip_run();
  // They had returned before this process came, and nobody is left: it tells the agent that it
  // takes no part.
  void leave_finished_run();
  // Whether they have returned in this generation, after the world has failed.
  bool others_have_finished();

 private:
  ProcessWorld();
  void begin_in_child();
  void register_end_of_program();
  void end_of_program(int exit_code);
  // For the agent, which asks for a person, or before it stops this process.
  AgentChannel::Activity activity(bool wants_dump) const;
  void begin_to_leave();
  runtime::Failure leave(runtime::World& world);
  void tell_of_the_end(const runtime::World* left, const runtime::Failure& outcome);
  bool breaks_for_departure(const runtime::Failure& failure) const;
  Status init_without_hvdrun();
  Status init_alone();
  Status init_with_others(LauncherStore& store);
  Status init_as_worker(const std::string& descriptor);
  Status open_agent(const std::string& descriptor);
  // Forms the world of this document.
  Status form(const WorldDocument& document, const std::string& sealed_key,
              rendezvous::Client& client, std::uint64_t round,
              std::shared_ptr<runtime::Interrupt> interrupt);
  Result<Settings> settings_for(const WorldMember& self, std::uint64_t generation);
  runtime::WorldSpec spec_of(const WorldDocument& document, int rank, const Token& key);
  // join() of one attempt among several to form the same world.
  Status join_attempt(runtime::WorldSpec spec, Settings settings, RendezvousExchange& exchange,
                      const std::string& scope);
  Status init_elastic();
  Status enter(TimePoint again_at);
  void tell_of_another_attempt(const Membership::Entry& entry);
  Status give_up(const Status& why);
  Status enter_first();
  // The process sets of this world.
  Status restore_sets(const WorldDocument& document, rendezvous::Client& client,
                      const std::string& scope, runtime::WorldSpec& spec);
  void leave_ended_world();
  Status join(runtime::WorldSpec spec, Settings settings, runtime::Exchange& exchange);
  // A process set was added (null: removed) in the order of that world.
  void note_set(std::uint64_t generation, int id, const std::vector<int>* ranks, bool by_members);

  std::mutex lifecycle_mutex_;  // held through init() and shutdown(); taken before mutex_

  // Under lifecycle_mutex_.
  InitOptions options_;  // of the last init()
  Settings settings_;    // likewise
  RoundCounter rounds_;
  std::string ended_because_;  // the last world of an elastic job that was in force
  WorldTeardown teardown_;     // but destroy(), which needs no lock
  // The way to a launcher with which a process talks once, from its first init() to its end.
  std::unique_ptr<LauncherStore> launcher_;

  // Under both for writing, and one of them for reading; set once.
  AgentChannel* agent_ = nullptr;

  // Counts in all worlds of this process; safe from any thread.
  std::shared_ptr<runtime::WorkMeter> meter_ = std::make_shared<runtime::WorkMeter>();
  EntryTimer entry_timer_{[meter = meter_] { return meter->received(); }};

  // Under mutex_.
  mutable std::mutex mutex_;
  mutable CurrentWorld current_;
  FormedGeneration generation_;
  Departure departure_;  // but program_ends
  SetTable sets_;        // of the current world, or of the last one

  // An elastic job, under mutex_.
  Membership* membership_ = nullptr;  // set once
  bool follows_ = false;              // follow() instead of init()
  int runs_ = 0;                      // of elastic::run, under way
  // This worker has come to a job under way, and is in no run with the others yet.
  std::atomic<bool> catches_up_ = false;
  std::uint64_t finished_runs_ = 0;  // likewise, over on all ranks
  UniqueFd state_memory_;

  bool end_is_registered_ = false;  // under mutex_
  bool had_world_ = false;          // likewise; whatever became of it
  SaveMeter save_meter_;            // safe from any thread
};

}  // namespace hvd::worker
