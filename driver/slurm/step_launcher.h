// Starts agents on the nodes of a Slurm allocation, without SSH: one step of srun for each node, so
// that Slurm accounts for it and cleans up after it, and so that the loss of one node ends no other
// step. The step runs `hvdrun agent --join`, which connects to this process: the link between the
// two is that of agents that join by themselves (driver/join/join_server.h), encrypted and
// authenticated with a secret of this job alone. Each step gets it on its standard input, sealed by
// MUNGE.
//
// Owned by the driver; every call and callback on its thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include <boost/asio/io_context.hpp>

#include "driver/core/agent_handle.h"
#include "driver/core/job_spec.h"
#include "driver/job/preflight.h"

namespace hvd::driver::slurm {

class StepLauncher {
 public:
  using Done = std::function<void(std::variant<AgentConnection, HostError> result)>;

  // `warn` gets a line about each connection that was refused. `spec` outlives this.
  StepLauncher(boost::asio::io_context& io, const SlurmSpec& spec,
               std::function<void(std::string_view)> warn);
  // Asks all steps to end, waits for them for a moment, and kills the srun of those that stay.
  // Agents that were handed over have to be ended before.
  ~StepLauncher();
  StepLauncher(const StepLauncher&) = delete;
  StepLauncher& operator=(const StepLauncher&) = delete;

  // `done` is called once, perhaps from within, unless the start is given up before. There is at
  // most one start in progress for each node.
  void start(const std::string& node, Done done);
  // True if a start was in progress; its step is ended.
  bool give_up(const std::string& node);
  // The message of the step in progress: "srun: Job 7 step creation temporarily disabled". Empty:
  // it has said nothing, or there is no such step.
  std::string said(const std::string& node) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hvd::driver::slurm
