// Which world this process belongs to, in a job whose world changes: it hears of new worlds from
// the agent, ends the one in force as soon as a newer one is, and says which to enter next. One per
// process, for the rest of its life. Safe from any thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/protocol/world_document.h"
#include "base/status.h"
#include "rendezvous/client.h"
#include "runtime/core/interrupt.h"
#include "worker/process/agent_channel.h"
#include "worker/process/world_follower.h"

namespace hvd::worker {

class Membership {
 public:
  // A world to be formed, or in force.
  struct Entry {
    WorldDocument document;
    std::string key;  // of that generation, sealed for this worker
    // Which attempt of the members this is: one more after each that this process has announced.
    std::uint64_t round = 0;
    std::shared_ptr<runtime::Interrupt> interrupt;
    std::shared_ptr<rendezvous::Client> client;  // cancelled with it
  };

  // Listens to the agent from now on. An error: its Welcome holds no world that can be read.
  static Result<Membership*> begin(AgentChannel& agent);

  // The newest world has this worker in it, its key has come, and it was not entered yet: next()
  // returns at once.
  bool has_next() const;
  // Blocks until there is a world to enter: a newer one; at `again_at` the one entered last, if
  // there is one, since a world can fail without the loss of a member. While hvdrun is gone that
  // one waits for a successor, and then as long again: its members meet in hvdrun's rendezvous. It
  // is not entered again once a commit has named a newer one, whose key may be on its way here. A
  // worker that was in no world yet says that it is ready, and waits without end: the driver
  // decides.
  // failed_precondition: the newest world does without this worker. aborted: the job is being
  // stopped. deadline_exceeded.
  Result<Entry> next(TimePoint again_at, TimePoint deadline = kNever);
  // The members of the last entry know where they all are, and connect without hvdrun. One that
  // goes before that takes the rendezvous with it, and what this process wrote there: the attempt
  // ends.
  void met();
  // The others may have read where this process is, in the round of the last entry: it cannot be
  // used again. A process that fails before that comes back to the round in which they wait for it.
  void announced();
  // While the program is in elastic::run, a process that has not come to a newer world within
  // `limit` of hearing of it ends: nothing else would get its threads out of where they hang, and
  // the others wait. Zero: never. While hvdrun is gone this time does not run, since nobody could
  // take its place, and begins again with a successor.
  void end_if_late(std::chrono::milliseconds limit);
  void set_running(bool running);
  // This process leaves although the work is not done: next() returns failed_precondition, and the
  // attempt to form a world ends. Until resume().
  void abandon();
  void resume();
  bool wait_for_newer(TimePoint deadline);

  bool is_out() const;
  // The world that a commit would take into force: the document of a proposed world; empty without
  // one.
  std::string proposal() const;
  std::optional<std::uint64_t> proposed_generation() const;
  // Whether this document is that of the last world: all members leave.
  static bool is_last(const std::string& document);
  // All have agreed to go over to it. Ends the world in force, and tells the agent.
  Status committed(const std::string& document);
  // The world in force ended because of that.
  bool ended_by_plan() const;
  AgentChannel& agent() { return agent_; }

 private:
  explicit Membership(AgentChannel& agent);
  void hear(const worker_link::World& message);
  void hear_of_driver(bool gone);
  const WorldDocument* next_with_key() const;
  bool is_over_or_newer() const;
  TimePoint late_at() const;
  std::optional<std::string> late() const;
  void end_current(const WorldDocument& newer, const std::string& how);

  AgentChannel& agent_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  WorldFollower follower_;
  std::map<std::uint64_t, std::string> keys_;  // by generation, from that of current_ on
  Entry current_;
  bool ended_by_plan_ = false;
  bool ready_sent_ = false;
  bool meets_ = false;  // since the last entry, and until met()
  bool announced_ = false;
  bool abandoned_ = false;
  bool running_ = false;
  std::chrono::milliseconds late_after_{0};
  TimePoint heard_ = kNever;  // of the world that is to be entered next, and of its key
};

}  // namespace hvd::worker
