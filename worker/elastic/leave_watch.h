// SIGTERM as the wish that this worker leaves, while elastic::run() runs: the agent is told, and
// the worker goes on until a commit that leaves it out. Unless the program has made the signal its
// own, or the agent has announced that the whole job stops: then it does what it does.
#pragma once

#include <csignal>
#include <thread>

#include "base/descriptors.h"
#include "worker/process/agent_channel.h"

namespace hvd::worker {

class LeaveWatch {
 public:
  // The channel must outlive it. One at a time does something.
  explicit LeaveWatch(AgentChannel& agent);
  // The signal does what it did before, also one that the agent has not been told of, unless the
  // program has set a handler of its own meanwhile, which stays.
  ~LeaveWatch();
  LeaveWatch(const LeaveWatch&) = delete;
  LeaveWatch& operator=(const LeaveWatch&) = delete;

 private:
  void watch();

  AgentChannel& agent_;
  UniqueFd over_;  // an eventfd: the end
  bool installed_ = false;
  std::thread thread_;
};

}  // namespace hvd::worker
