// The shell around a job's state machine (driver/job/any_job.h): performs what it decides, and
// tells it what happens. It owns the sockets, processes and timers of one job; made and used by
// run_job() (driver/driver.h), on its thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/clock.h"
#include "base/protocol/agent_link.h"
#include "base/security/crypto.h"
#include "driver/activity_report.h"
#include "driver/agents/address_book.h"
#include "driver/agents/address_search.h"
#include "driver/agents/agent_session.h"
#include "driver/agents/host_source.h"
#include "driver/agents/host_starter.h"
#include "driver/agents/preparation.h"
#include "driver/core/job_pause.h"
#include "driver/core/notices.h"
#include "driver/core/signals.h"
#include "driver/core/this_machine.h"
#include "driver/driver.h"
#include "driver/job/any_job.h"
#include "driver/job/plan.h"
#include "driver/orphans.h"
#include "driver/worker_environment.h"
#include "driver/worker_news.h"
#include "driver/worker_output.h"
#include "rendezvous/server.h"

namespace hvd::driver {

class Shell {
 public:
  // All outlive this.
  Shell(boost::asio::io_context& io, Signals& signals, RequestSignals& requests,
        const MoreOpenFiles& open_files, const JobSpec& spec, Observer& observer,
        Preparation preparation);
  Shell(const Shell&) = delete;
  Shell& operator=(const Shell&) = delete;

  // What there is to say before anything is started.
  void announce();
  // Returns when no process of the job is left. Once.
  Outcome run();

 private:
  // driver/shell.cpp
  void begin_elastic();
  HostStarterCallbacks starter_callbacks();
  AgentSessionCallbacks session_callbacks(HostIndex host);
  // At a steady pace: what is late is not made up for.
  void beat(TimePoint now);
  // Before time is held against anybody: which agents were heard, and which this process is behind
  // with.
  void listen(TimePoint now);
  void remind();
  // Events that come up while one is being handled wait for their turn.
  void feed(const Event& event);
  // Those of which the job has not spoken before.
  void meet_new_hosts();
  // Once for all events of this turn of the loop: each asks every host.
  // The time that the job is handed. It stands still while Ctrl-Z holds the job, whose limits so
  // count only the time in which it ran.
  TimePoint job_now() const { return Clock::now() - paused_; }
  void arm_timer_soon();
  void arm_timer();
  void greet(HostIndex host, AgentConnection connection);
  // The visit is over; others of the same host will follow. Not within the session's own call.
  void forget(HostIndex host);
  void pay(const agent_link::Credit& credit);
  void kill_orphans();
  void on_signal(int signal);
  void on_request(int signal);
  JobPause::Callbacks pause_callbacks();
  ActivityReport::Callbacks activity_callbacks();
  std::map<std::uint64_t, ActivityRow> live_workers() const;
  std::set<HostIndex> tell_agents(const SharedBytes& frame);

  // driver/shell_actions.cpp
  void perform(const action::PublishWorld& action);
  void perform(const action::StartAgent& action);
  void perform(const action::PlanStands&);
  void perform(const action::ChooseAddresses&);
  void perform(const action::FindAddress& action);
  void perform(const action::Launch& action);
  void perform(const action::StopWorkers& action);
  void perform(const action::KillWorkers& action);
  void perform(const action::DescribeWorker& action);
  void perform(const action::ShutDownAgent& action);
  void perform(const action::DropAgent& action);
  void perform(const action::Say& action);
  void perform(const action::Finish& action);
  // Once, when the first worker starts on another host.
  void tell_kept_secrets();
  void tell_workers(std::uint64_t generation, bool effective, const SharedBytes& world);
  // Its Launch frame, made when its turn comes.
  std::string launch_of(HostIndex host, const WorldMember& member, bool world_follows) const;
  // What torch's own way to meet would need.
  void follow_leader(const WorldDocument& world);
  // Free there when it was looked for.
  std::optional<std::uint16_t> master_port(HostIndex host, const std::string& address) const;
  AddressWishes address_wishes() const {
    return {spec_.advertise_address, spec_.network_interfaces};
  }
  HostNetwork network_of(HostIndex host) const;
  void on_addresses(const AddressChoice& choice);
  template <typename Message>
  void send(HostIndex host, const Message& message) {
    if (sessions_[host]) sessions_[host]->send(share(message.encode()));
  }

  boost::asio::io_context& io_;
  Signals& signals_;
  RequestSignals& requests_;
  const MoreOpenFiles& open_files_;
  const JobSpec& spec_;
  Observer& observer_;
  const std::vector<HostSlots> hosts_;  // that were named
  const Plan plan_;
  const Subreaper subreaper_;
  const Token token_ = Token::random();
  const std::string job_id_;
  rendezvous::Server server_;
  const std::unique_ptr<AnyJob> job_;
  std::map<std::string, event::FoundHost> known_hosts_;  // the newest answer, by name
  // By host, as the job counts them.
  std::vector<std::string> host_names_;
  std::vector<event::FoundHost> visited_;
  std::vector<SocketAddress> rendezvous_;  // where it reaches the service
  std::unique_ptr<HostStarter> starter_;
  std::vector<std::unique_ptr<AgentSession>> sessions_;  // by host; null: no agent yet, or any more
  std::unique_ptr<AddressSearch> search_;                // of a static job
  std::unique_ptr<HostSource> source_;                   // of an elastic one, as the next
  std::unique_ptr<AddressBook> address_book_;
  WorkerOutput output_;
  WorkerNews news_;
  boost::asio::steady_timer timer_;
  TimePoint wake_at_ = kNever;  // as the job counts
  Duration paused_{};           // so long Ctrl-Z has held the job
  bool arming_ = false;
  boost::asio::steady_timer heartbeat_timer_;
  Notices notices_;
  JobPause pause_;
  ActivityReport activity_;

  JobEnvironment environment_;  // but for what is a host's own
  Incarnation leader_ = 0;      // rank 0 of the world in force
  // What each worker is started with; encoded once, whatever the number of hosts and workers.
  SharedBytes program_;
  SharedBytes world_;  // in force
  std::uint64_t world_generation_ = 0;
  std::deque<Event> events_;
  bool feeding_ = false;
  bool kept_secrets_told_ = false;
  Outcome outcome_;
};

}  // namespace hvd::driver
