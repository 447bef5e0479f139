// One agent, as the driver's thread sees it: its process, the link to it, and the translation
// between frames (base/protocol/agent_link.h) and the events of driver/job.h. What arrives is
// trusted in nothing: what no agent of ours sends becomes event::AgentBroken.
//
// Owned by the driver; every call and callback on the driver's thread. A callback may not destroy
// the session.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <sys/types.h>

#include <boost/asio/io_context.hpp>

#include "base/protocol/agent_link.h"
#include "base/status.h"
#include "driver/job_io.h"

namespace hvd::driver {

struct AgentSessionOptions {
  HostIndex host = 0;
  std::string agent_path;
  std::string job_id;
};

struct AgentSessionCallbacks {
  std::function<void(const Event& event)> on_event;
  // An error means that the agent may not have sent it.
  std::function<Status(agent_link::Output output)> on_output;
  std::function<Status(const agent_link::OutputClosed& closed)> on_output_closed;
  std::function<void(std::string_view message)> on_problem;
  // The agent died without a goodbye: kills what it left, before AgentGone is reported.
  std::function<void()> kill_orphans;
};

class AgentSession {
 public:
  // Starts the agent and greets it. The last event is AgentGone.
  static Result<std::unique_ptr<AgentSession>> start(boost::asio::io_context& io,
                                                     AgentSessionOptions options,
                                                     AgentSessionCallbacks callbacks);
  ~AgentSession();
  AgentSession(const AgentSession&) = delete;
  AgentSession& operator=(const AgentSession&) = delete;

  // An encoded frame. Frames sent in one go leave in one write.
  void send(std::string_view frame);
  void drop();
  pid_t pid() const;

 private:
  class Impl;
  explicit AgentSession(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace hvd::driver
