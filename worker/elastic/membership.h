// Which world this process belongs to, in a job whose world changes: it hears of new worlds from
// the agent, ends the one in force as soon as a newer one is, and says which to enter next. One per
// process, for the rest of its life. Safe from any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/protocol/world_document.h"
#include "base/status.h"
#include "rendezvous/client.h"
#include "runtime/interrupt.h"
#include "worker/agent_channel.h"
#include "worker/elastic/world_follower.h"

namespace hvd::worker {

class Membership {
 public:
  // A world to be formed, or in force.
  struct Entry {
    WorldDocument document;
    std::uint64_t round = 0;  // how often this process has tried to form this generation
    std::shared_ptr<runtime::Interrupt> interrupt;
    std::shared_ptr<rendezvous::Client> client;  // cancelled with it
  };

  // Listens to the agent from now on. An error: its Welcome holds no world that can be read.
  static Result<Membership*> begin(AgentChannel& agent);

  // The newest world has this worker in it, and was not entered yet: next() returns at once.
  bool has_next() const;
  // Blocks until there is a world to enter: a newer one; at `again_at` the one entered last, if
  // there is one, since nobody may have been lost with it. A worker that was in no world yet says
  // that it is ready, and waits without end: the driver decides. failed_precondition: the newest
  // world does without this worker. aborted: the job is being stopped. deadline_exceeded.
  Result<Entry> next(TimePoint again_at, TimePoint deadline = kNever);
  bool wait_for_newer(TimePoint deadline);

  bool is_out() const;
  // What a commit would take into force: the document of a proposed world; empty: none.
  std::string proposal() const;
  std::optional<std::uint64_t> proposed_generation() const;
  // All have agreed to go over to it. Ends the world in force, and tells the agent.
  Status committed(const std::string& document);
  // The world in force ended because of that.
  bool ended_by_plan() const;
  AgentChannel& agent() { return agent_; }

 private:
  explicit Membership(AgentChannel& agent);
  void hear(const worker_link::World& message);
  void end_current(const WorldDocument& newer, const std::string& how);

  AgentChannel& agent_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  WorldFollower follower_;
  Entry current_;
  bool ended_by_plan_ = false;
  bool ready_sent_ = false;
};

}  // namespace hvd::worker
