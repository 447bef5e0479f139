// Starts the agents on the hosts of a job: as a child process on this machine, through SSH on
// others, by srun in an allocation of Slurm. Where an agent has joined by itself there is nothing
// to start.
//
// Owned by the driver; every call and callback on its thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include <boost/asio/io_context.hpp>

#include "driver/core/agent_handle.h"
#include "driver/core/job_spec.h"
#include "driver/job/job_io.h"
#include "driver/job/preflight.h"

namespace hvd::driver {

struct HostStarterCallbacks {
  std::function<void(HostIndex host, Step step)> on_step;
  std::function<void(std::string_view text)> on_warning;  // one line
  // Exactly one of these two is called for each host that was not given up. Both may be called from
  // within start().
  std::function<void(HostIndex host, AgentConnection connection)> on_agent;
  std::function<void(HostIndex host, HostError error)> on_error;
};

class HostStarter {
 public:
  // `joined`: agents that are connected already, by host. `spec` outlives this.
  HostStarter(boost::asio::io_context& io, const JobSpec& spec,
              std::map<std::string, AgentConnection> joined, HostStarterCallbacks callbacks);
  ~HostStarter();  // gives up all starts in progress; agents that were handed over stay
  HostStarter(const HostStarter&) = delete;
  HostStarter& operator=(const HostStarter&) = delete;

  // `local`: the host is this machine.
  void start(HostIndex host, const HostSlots& how, bool local);
  // True if the start was in progress; there are no callbacks for it any more.
  bool give_up(HostIndex host);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace hvd::driver
