// The hosts of a running job, as the driver reaches them: the agent's session, the addresses, the
// labels. The job's own state of each host is in driver/job/hosts.h.
//
// For the driver's thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/shared_bytes.h"
#include "base/status.h"
#include "driver/agents/agent_session.h"
#include "driver/agents/preparation.h"
#include "driver/job/addresses.h"
#include "driver/job/job.h"
#include "driver/run/job_context.h"

namespace hvd::driver {

struct RunningHost {
  event::FoundHost found;
  SocketAddress rendezvous;               // the address at which it reaches the service
  std::unique_ptr<AgentSession> session;  // null: no agent yet, or any more
  std::vector<std::string> labels = {};   // with which its agent has joined
};

class HostTable {
 public:
  // `context` and `job` outlive this.
  HostTable(const JobContext& context, const Job& job, const Preparation& preparation);
  HostTable(const HostTable&) = delete;
  HostTable& operator=(const HostTable&) = delete;

  // To be called after the job has handled the event: takes up the hosts that it has added.
  void on_event(const Event& event);
  // Those that were another machine's own are not this machine's, unless their name says so.
  void forget_local();

  RunningHost& at(HostIndex host) { return hosts_[host]; }
  const RunningHost& at(HostIndex host) const { return hosts_[host]; }
  const std::string& name(HostIndex host) const { return hosts_[host].found.host.name; }
  std::size_t size() const { return hosts_.size(); }
  bool are_all_here() const;  // on this machine, as far as they are known
  // An agent that is no child of this process is connected.
  bool has_agent_elsewhere() const;

  void open_session(HostIndex host, AgentSessionOptions options, AgentSessionCallbacks callbacks,
                    AgentConnection connection);
  // This session has ended; the host may have others later. The session is destroyed after its own
  // callback has returned.
  void close_session_soon(HostIndex host);
  void end_sessions();

  // No effect on hosts without a session.
  template <typename Message>
  void send(HostIndex host, const Message& message) {
    if (hosts_[host].session) hosts_[host].session->send(share(message.encode()));
  }
  // Returns the hosts with a session.
  std::set<HostIndex> broadcast(const SharedBytes& frame);
  // To the hosts that have workers.
  void send_world(const WorldFrames& world);
  void send_world(HostIndex host, const WorldFrames& world);
  void send_heartbeats();
  // Each session tells the job whether its agent was heard, and whether this process itself keeps
  // it waiting.
  void report_liveness(TimePoint now, Duration pace);

  // The network of a host whose agent is ready.
  HostNetwork network_of(HostIndex host) const;
  // Whether the listeners of a host with so many workers have room in the range of ports.
  Status check_ports(HostIndex host, int workers) const;
  // A port that was free on the host when it was last looked for. Nothing: none is.
  std::optional<std::uint16_t> free_port_at(HostIndex host, const std::string& address) const;

 private:
  void add_new_hosts();

  const JobContext& context_;
  const Job& job_;
  std::map<std::string, event::FoundHost> known_;  // the newest answer, by name
  std::vector<RunningHost> hosts_;                 // by HostIndex
};

}  // namespace hvd::driver
