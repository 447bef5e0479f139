// The agent of this machine as a child process, with one socket as its standard input and output,
// in a session of its own so that Ctrl-C on the terminal does not reach it. The destructor kills
// it.
#pragma once

#include <string>
#include <sys/types.h>

#include "base/status.h"
#include "base/unique_fd.h"
#include "driver/core/agent_handle.h"

namespace hvd::driver {

class AgentProcess : public AgentHandle {
 public:
  // A running agent and the link to it. The error names the path.
  static Result<AgentConnection> start(const std::string& path);
  ~AgentProcess() override;

  int ended_fd() const override { return ended_.get(); }
  void kill() override;
  std::string reap() override;
  pid_t pid() const override { return pid_; }

 private:
  AgentProcess(pid_t pid, UniqueFd ended) : pid_(pid), ended_(std::move(ended)) {}
  pid_t pid_ = -1;  // also after the child was reaped
  bool reaped_ = false;
  UniqueFd ended_;
};

}  // namespace hvd::driver
