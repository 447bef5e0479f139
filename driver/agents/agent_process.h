// The agent of this machine as a child process: started at once, with one socket as its standard
// input and output, in a session of its own so that Ctrl-C on the terminal does not reach it. Dies
// with the object.
#pragma once

#include <string>
#include <sys/types.h>

#include "base/status.h"
#include "base/unique_fd.h"
#include "driver/core/agent_handle.h"

namespace hvd::driver {

class AgentProcess : public AgentHandle {
 public:
  // A running agent and the link to it. The error names the path. A patient one waits to be greeted
  // for as long as the link stands.
  static Result<AgentConnection> start(const std::string& path, bool patient = false);
  ~AgentProcess() override;

  int ended_fd() const override { return ended_.get(); }
  void kill() override;
  std::string reap() override;
  pid_t pid() const override { return pid_; }

 private:
  AgentProcess(pid_t pid, UniqueFd ended) : pid_(pid), ended_(std::move(ended)) {}
  pid_t pid_ = -1;  // stays known after it was reaped
  bool reaped_ = false;
  UniqueFd ended_;
};

}  // namespace hvd::driver
