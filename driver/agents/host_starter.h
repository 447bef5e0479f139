// Brings agents to the hosts of a job, by whatever way each host is reached: as a child process on
// this machine, through SSH, or not at all where an agent has come by itself.
//
// Owned by the driver; every call and callback on its thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "driver/core/agent_hold.h"
#include "driver/core/job_spec.h"
#include "driver/job/job_io.h"
#include "driver/job/preflight.h"

namespace hvd::driver {

struct HostStarterCallbacks {
  std::function<void(HostIndex host, Step step)> on_step;
  // Exactly one of these two for each host, unless it was given up. Both may come from within
  // start().
  std::function<void(HostIndex host, AgentConnection connection)> on_agent;
  std::function<void(HostIndex host, HostTrouble trouble)> on_trouble;
};

class HostStarter {
 public:
  // `joined`: agents that are there already, by host. `spec` outlives this.
  HostStarter(boost::asio::io_context& io, const JobSpec& spec,
              std::map<std::string, AgentConnection> joined, HostStarterCallbacks callbacks);
  ~HostStarter();  // gives up what is under way; agents that were handed over stay
  HostStarter(const HostStarter&) = delete;
  HostStarter& operator=(const HostStarter&) = delete;

  // `local`: it is this machine.
  void start(HostIndex host, const HostSlots& how, bool local);
  // True if it was under way; nothing more is said of it then.
  bool give_up(HostIndex host);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace hvd::driver
