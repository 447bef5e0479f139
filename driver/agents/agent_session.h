// The driver's side of one agent: the link to it, whatever lies between, and the translation
// between frames (base/protocol/agent_link.h) and the events of driver/job/job.h. What arrives is
// trusted in nothing: what no agent of ours sends becomes event::AgentBroken, or event::HostFailed
// if the agent was not ready yet.
//
// Owned by the driver; every call and callback on the driver's thread. A callback may not destroy
// the session.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>

#include <boost/asio/io_context.hpp>

#include "base/clock.h"
#include "base/protocol/agent_link.h"
#include "base/shared_bytes.h"
#include "base/status.h"
#include "driver/agents/outgoing_frames.h"
#include "driver/core/agent_hold.h"
#include "driver/job/job_io.h"

namespace hvd::driver {

struct AgentSessionOptions {
  HostIndex host = 0;
  std::string where;        // of the agent's executable, for errors
  agent_link::Hello hello;  // protocol and build id are filled in
  agent_link::Check check;  // follows it at once
  // CUDA_VISIBLE_DEVICES of the workers, if it is not each host's own business.
  std::optional<std::string> visible_devices;
};

struct AgentSessionCallbacks {
  // Before ready: AgentReady, or HostFailed as the last. After it the last one is AgentGone, and
  // also if it was dropped.
  std::function<void(const Event& event)> on_event;
  // An error means that the agent may not have sent it.
  std::function<Status(agent_link::Output output)> on_output;
  std::function<Status(const agent_link::OutputClosed& closed)> on_output_closed;
  std::function<Status(const agent_link::Probed& probed)> on_probed;
  std::function<void(std::string_view message)> on_problem;
  std::function<void(agent_link::WorkerActivity activity)> on_activity;
  // Somebody there wants to know what all workers do.
  std::function<void()> on_activity_wanted;
  // The answer to agent_link::Pause.
  std::function<void()> on_paused;
  // An agent that is a child of this process died without a goodbye: kills what it left, before
  // that is reported.
  std::function<void()> kill_orphans;
};

class AgentSession {
 public:
  // Greets the agent.
  AgentSession(boost::asio::io_context& io, AgentSessionOptions options,
               AgentSessionCallbacks callbacks, AgentConnection connection);
  ~AgentSession();  // ends the agent, without a word
  AgentSession(const AgentSession&) = delete;
  AgentSession& operator=(const AgentSession&) = delete;

  // An encoded frame, or a function that makes it when its turn comes; the session does not call it
  // any more once it is destroyed.
  void send(SharedBytes frame);
  void send(OutgoingFrames::Make make);
  // The job's Program: only the first call sends it.
  void send_program(const SharedBytes& program);
  // A World as an encoded frame. An effective one is sent only if it is newer than those before it;
  // of those that wait the newest of each kind is sent.
  void send_world(std::uint64_t generation, bool effective, SharedBytes frame);
  // To be called at a steady pace: once the agent is ready it is sent a heartbeat, unless the last
  // one still waits to be written.
  void beat();
  // Reports event::Heard if the agent has said anything since that was last reported, and
  // event::Unserved if it has not for `pace`, and this process is behind with it.
  void look(TimePoint now, Duration pace);
  void drop();
  // Of a child of this process; else -1.
  pid_t pid() const;
  // What it said of its host; empty before it was ready.
  const agent_link::Ready& ready() const;
  // As AgentConnection has them.
  const std::string& local_address() const;
  const std::string& peer_address() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace hvd::driver
