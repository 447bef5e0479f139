// The driver's side of one agent: the link to it, through whatever tunnel, and the translation
// between frames (base/protocol/agent_link.h) and the events of driver/job/job.h. Nothing that
// arrives is trusted: a frame that no agent of this build sends becomes event::AgentBroken, or
// event::HostFailed if the agent was not ready yet.
//
// Owned by the driver; every call and callback on the driver's thread. A callback may not destroy
// the session.
// driver/agents/agent_session_state.h has its states.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <sys/types.h>

#include <boost/asio/io_context.hpp>

#include "base/clock.h"
#include "base/protocol/agent_link.h"
#include "base/shared_bytes.h"
#include "base/status.h"
#include "driver/agents/outgoing_frames.h"
#include "driver/core/agent_handle.h"
#include "driver/job/job_io.h"

namespace hvd::driver {

struct AgentSessionOptions {
  HostIndex host = 0;
  std::string where;        // of the agent's executable, for errors
  agent_link::Hello hello;  // the session fills in protocol and build id
  agent_link::Check check;  // sent right after it
  // CUDA_VISIBLE_DEVICES of the workers; nullopt: each host has its own.
  std::optional<std::string> visible_devices;
};

struct AgentSessionCallbacks {
  // The first event is AgentReady; ready().was_held tells whether the agent has served an earlier
  // driver, and what it has reported to that one comes again. The last one is HostFailed if the
  // agent never was ready, and AgentGone if it was, or if it was dropped.
  std::function<void(const Event& event)> on_event;
  // An error means that the agent was not allowed to send the message.
  std::function<Status(agent_link::Output output)> on_output;
  std::function<Status(const agent_link::OutputClosed& closed)> on_output_closed;
  std::function<Status(const agent_link::Probed& probed)> on_probed;
  std::function<void(const agent_link::Problem& problem)> on_problem;
  // A worker could not reach a host of its world.
  std::function<void(const agent_link::WorkerCannotReach& report)> on_cannot_reach;
  std::function<void(agent_link::WorkerActivity activity)> on_activity;
  std::function<void(const agent_link::WorkReports& reports)> on_work;
  // A user on that host asks for a report on all workers.
  std::function<void(const agent_link::ActivityWanted&)> on_activity_wanted;
  // The answer to agent_link::Pause.
  std::function<void(const agent_link::Paused& paused)> on_paused;
  // The newest commit that its workers have made while the job had no driver.
  std::function<void(const agent_link::CommitMark& mark)> on_commit_mark;
  // An agent that is a child of this process died without a goodbye: kills the processes that it
  // has left, before its end is reported.
  std::function<void()> kill_orphans;
};

// A world as it goes out: the same bytes to every agent, and to each the keys of its own workers.
struct WorldFrames {
  std::uint64_t generation = 0;
  bool effective = true;
  SharedBytes world;                        // agent_link::World, encoded; null: there is none
  std::map<std::string, SharedBytes> keys;  // agent_link::WorldKeys, by the name of the host
};

class AgentSession {
 public:
  // Sends Hello and Check.
  AgentSession(boost::asio::io_context& io, AgentSessionOptions options,
               AgentSessionCallbacks callbacks, AgentConnection connection);
  ~AgentSession();  // kills the agent
  AgentSession(const AgentSession&) = delete;
  AgentSession& operator=(const AgentSession&) = delete;

  // An encoded frame, or a function that makes one when its turn comes. The session calls the
  // function only as long as it exists.
  void send(SharedBytes frame);
  void send(OutgoingFrames::Make make);
  // The job's Program: only the first call sends it.
  void send_program(const SharedBytes& program);
  // An effective world is sent only if it is newer than all that were sent before, and of those
  // that wait only the newest of each kind is sent. `host`: the job's name for this one.
  void send_world(const WorldFrames& world, const std::string& host);
  // To be called at a steady pace: sends a heartbeat if the agent is ready, unless the last one
  // still waits to be written.
  void send_heartbeat();
  // Reports event::Heard if bytes have come from the agent since the last such report, and
  // event::Unserved if none have come for `pace` and this process is the reason for it.
  void report_liveness(TimePoint now, Duration pace);
  // Kills the agent; its end is reported as always.
  void drop();
  // The agent's, if it is a child of this process; else -1.
  pid_t pid() const;
  // The agent's report on its host, with the newest of its free ports; empty before Ready has come.
  const agent_link::Ready& ready() const;
  // See AgentConnection.
  const std::string& local_address() const;
  const std::string& peer_address() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace hvd::driver
