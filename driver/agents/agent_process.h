// The agent of this machine as a child process, with one socket as its standard input and output,
// in a session of its own so that Ctrl-C on the terminal does not reach it. The destructor kills
// it.
#pragma once

#include <string>
#include <sys/types.h>
#include <utility>

#include "base/descriptors.h"
#include "base/machine/child_process.h"
#include "base/status.h"
#include "driver/core/agent_handle.h"

namespace hvd::driver {

class AgentProcess : public AgentHandle {
 public:
  // A running agent and the link to it. The error names the path.
  static Result<AgentConnection> start(const std::string& path);

  int ended_fd() const override { return ended_.get(); }
  void kill() override;
  std::string reap() override;
  pid_t pid() const override { return agent_.pid(); }

 private:
  AgentProcess(ChildProcess agent, UniqueFd ended)
      : agent_(std::move(agent)), ended_(std::move(ended)) {}
  ChildProcess agent_;
  UniqueFd ended_;
};

}  // namespace hvd::driver
