// Where a job's agents come from: the driver starts them (HostStarter), or they join by themselves
// (HostSource, of an elastic job, which also finds its hosts).
//
// For the driver's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "driver/agents/host_source.h"
#include "driver/agents/host_starter.h"
#include "driver/run/host_table.h"
#include "driver/run/job_context.h"

namespace hvd::driver {

class AgentSupply {
 public:
  struct Callbacks {
    std::function<void(const Event& event)> handle;
    std::function<void(HostIndex host, AgentConnection connection)> on_agent;
  };

  // `joined`: agents of a static job that are connected already, by host. `context`,
  // `hosts` and `tokens` outlive this.
  AgentSupply(const JobContext& context, const HostTable& hosts, join::JoinTokens& tokens,
              std::map<std::string, AgentConnection> joined, Callbacks callbacks);
  AgentSupply(const AgentSupply&) = delete;
  AgentSupply& operator=(const AgentSupply&) = delete;

  // Begins to look for the hosts of an elastic job: `listed`, or what its script says.
  void begin_discovery(std::vector<HostSlots> listed);
  // The agent of this host had joined an earlier driver, and joins again by itself. Right after
  // begin_discovery().
  void expect(HostIndex host);
  // Callbacks::on_agent is called, or event::HostFailed comes.
  void start(HostIndex host);
  void give_up(HostIndex host) { starter_->give_up(host); }
  // The session with this host's agent is over: another one may join in its place.
  void agent_ended(HostIndex host);
  // The job has ended. Agents that wait for their turn end with this exit code; `done` is called
  // when they have.
  void close(int exit_code, std::function<void()> done);
  // Nothing that searches for hosts is left.
  void end_discovery() { source_.reset(); }
  // No tunnel to an agent is left.
  void end_starts() { starter_.reset(); }

 private:
  HostStarterCallbacks starter_callbacks();

  const JobContext& context_;
  const HostTable& hosts_;
  join::JoinTokens& tokens_;  // by which agents may join an elastic job
  const Callbacks callbacks_;
  std::unique_ptr<HostStarter> starter_;
  std::unique_ptr<HostSource> source_;         // of an elastic job
  std::map<std::string, HostIndex> expected_;  // to be started when they are here
};

}  // namespace hvd::driver
