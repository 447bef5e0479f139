// The agent of this host as a child process: started at once, with one socket as its standard input
// and output, in a session of its own so that Ctrl-C on the terminal does not reach it. Dies with
// the object.
#pragma once

#include <string>
#include <sys/types.h>

#include "base/status.h"
#include "base/unique_fd.h"

namespace hvd::driver {

class AgentProcess {
 public:
  // The error names the path.
  static Result<AgentProcess> start(const std::string& path, const UniqueFd& link);
  AgentProcess(AgentProcess&& other) noexcept;
  AgentProcess& operator=(AgentProcess&& other) = delete;
  ~AgentProcess();

  pid_t pid() const { return pid_; }
  // Readable when it has ended.
  int ended_fd() const { return ended_.get(); }
  void kill() const;
  // To be called once it has ended: "exited with code 0", "was killed by SIGKILL (signal 9)".
  std::string reap();

 private:
  AgentProcess(pid_t pid, UniqueFd ended) : pid_(pid), ended_(std::move(ended)) {}
  pid_t pid_ = -1;  // -1 when reaped
  UniqueFd ended_;
};

}  // namespace hvd::driver
