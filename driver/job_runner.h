// The I/O around a job's state machine (driver/job/job.h): performs its actions and feeds it
// the events. It owns the sockets, processes and timers of one job; created and used by run_job()
// (driver/driver.h), on its thread.
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
#include <nlohmann/json_fwd.hpp>

#include "base/clock.h"
#include "base/protocol/agent_link.h"
#include "base/security/crypto.h"
#include "base/unique_fd.h"
#include "driver/activity_report.h"
#include "driver/agents/address_book.h"
#include "driver/agents/address_search.h"
#include "driver/agents/agent_session.h"
#include "driver/agents/host_source.h"
#include "driver/agents/host_starter.h"
#include "driver/agents/preparation.h"
#include "driver/core/job_pause.h"
#include "driver/core/progress_timer.h"
#include "driver/core/signals.h"
#include "driver/core/this_machine.h"
#include "driver/driver.h"
#include "driver/job/job.h"
#include "driver/job/job_account.h"
#include "driver/job/job_start.h"
#include "driver/job/plan.h"
#include "driver/journal/journal.h"
#include "driver/last_activities.h"
#include "driver/metrics/job_metrics.h"
#include "driver/orphans.h"
#include "driver/status/control_server.h"
#include "driver/status/job_status.h"
#include "driver/status/metrics_server.h"
#include "driver/status/page_server.h"
#include "driver/work/work_watch.h"
#include "driver/worker_environment.h"
#include "driver/worker_output.h"
#include "driver/worker_reporter.h"
#include "rendezvous/server.h"

namespace hvd::driver {

class JobRunner {
 public:
  // They listen already, and nobody answers there yet. Empty: nobody shall.
  struct Sockets {
    UniqueFd metrics;
    UniqueFd page;
  };

  // All arguments outlive this.
  JobRunner(boost::asio::io_context& io, Signals& signals, RequestSignals& requests,
            const RaisedFileLimit& open_files, const JobSpec& spec, Observer& observer,
            Preparation preparation, std::string job_id, std::optional<Journal> journal,
            Sockets sockets);
  JobRunner(const JobRunner&) = delete;
  JobRunner& operator=(const JobRunner&) = delete;

  // Reports the plan and warnings before anything is started.
  void announce();
  // Returns when no process of the job is left. To be called once.
  Outcome run();

 private:
  // driver/job_runner.cpp
  void begin_elastic();
  HostStarterCallbacks starter_callbacks();
  AgentSessionCallbacks session_callbacks(HostIndex host);
  // Calls itself at a steady pace. A late heartbeat does not bring the next one forward.
  void send_heartbeats(TimePoint now);
  // Tells the job which agents were heard, and which this process itself keeps waiting. To be
  // called before the job judges anyone by time.
  void check_liveness(TimePoint now);
  void report_waiting();
  void warn_of_journal(const Status& written);
  void tell_of_journal(const std::string& text);
  void finish_journal();
  // Records the decisions of the job for its journal, its page and its metrics.
  void record(const Event& event, const std::vector<Action>& actions, TimePoint now);
  // How long the members took to come into the world is part of its history.
  void note(const event::WorldEntered& entered);
  // Events that arise while another one is handled wait for their turn.
  void handle(const Event& event);
  // Creates the records of hosts that the job has added.
  void register_new_hosts();
  // Arms the timer once for all events of this turn of the loop, since the job computes its next
  // deadline from all hosts.
  void arm_timer_soon();
  void arm_timer();
  void open_session(HostIndex host, AgentConnection connection);
  // This session has ended; the host may have others later. The session is destroyed after its own
  // callback has returned.
  void close_session(HostIndex host);
  void return_credit(const agent_link::Credit& credit);
  // Waits for a moment, and looks again later for those that take longer to die.
  void kill_orphans(std::chrono::milliseconds moment);
  void warn_of_orphans(std::size_t left);
  void on_signal(int signal);
  void on_request(int signal);
  JobPause::Callbacks pause_callbacks();
  std::set<HostIndex> broadcast(const SharedBytes& frame);

  // driver/job_runner_answers.cpp
  HttpReply metrics_reply();
  void serve_metrics();
  void serve_page();
  ActivityReport::Callbacks activity_callbacks();
  ControlServer::Callbacks control_callbacks();
  nlohmann::json status() const;
  void request_drain(std::string_view host, bool undo, ControlServer::Callbacks::Answer answer);
  void request(const Event& event, ControlServer::Callbacks::Answer answer);
  std::map<std::uint64_t, ActivityRow> live_workers() const;

  // driver/job_runner_actions.cpp
  void perform(const action::PublishWorld& action);
  void perform(const action::StartAgent& action);
  void perform(const action::PlanStands&);
  void perform(const action::ChooseAddresses&);
  void perform(const action::FindAddress& action);
  void perform(const action::VoidCommits& action);
  void perform(const action::Launch& action);
  void perform(const action::StopWorkers& action);
  void perform(const action::KillWorkers& action);
  void perform(const action::DescribeWorker& action);
  void perform(const action::ShutDownAgent& action);
  void perform(const action::DropAgent& action);
  void perform(const action::Say& action);
  void perform(const action::Answer& action);
  void perform(const action::Finish& action);
  void keep_last_words(HostIndex host, const agent_link::WorkerActivity& activity);
  std::string last_recovery_text() const;
  bool work_is_done() const;
  // Reports once, when the first worker starts on another host.
  void report_withheld_secrets();
  void send_world(std::uint64_t generation, bool effective, const SharedBytes& world);
  // The worker's Launch frame.
  std::string launch_of(HostIndex host, const WorldMember& member, bool world_follows) const;
  // Sets the environment that torch's own rendezvous would need (MASTER_ADDR, MASTER_PORT).
  void update_master_endpoint(const WorldDocument& world);
  // A port that was free on the host when the agent looked for one.
  HostEnvironment host_environment(HostIndex host, const WorldMember& member) const;
  std::optional<std::uint16_t> master_port(HostIndex host, const std::string& address) const;
  AddressPreferences address_preferences() const {
    return {spec_.advertise_address, spec_.network_interfaces};
  }
  HostNetwork network_of(HostIndex host) const;
  // Whether the range of ports has enough for the listeners of a host whose agent is ready.
  Status check_ports(HostIndex host, int workers) const;
  void on_addresses(const AddressChoice& choice);
  template <typename Message>
  void send(HostIndex host, const Message& message) {
    if (hosts_[host].session) hosts_[host].session->send(share(message.encode()));
  }

  boost::asio::io_context& io_;
  Signals& signals_;
  RequestSignals& requests_;
  const RaisedFileLimit& open_files_;
  const JobSpec& spec_;
  Observer& observer_;
  const std::vector<HostSlots> listed_hosts_;  // from the command line
  const Plan plan_;
  const Subreaper subreaper_;
  const Token token_ = Token::random();
  const std::string job_id_;
  rendezvous::Server server_;
  const JobStart start_;
  const std::unique_ptr<Job> job_;
  std::map<std::string, event::FoundHost> known_hosts_;  // the newest answer, by name
  struct HostRecord {
    event::FoundHost found;
    SocketAddress rendezvous;               // the address at which it reaches the service
    std::unique_ptr<AgentSession> session;  // null: no agent yet, or any more
    std::vector<std::string> labels = {};   // with which its agent has joined
  };
  std::vector<HostRecord> hosts_;  // by HostIndex
  std::unique_ptr<HostStarter> starter_;
  std::unique_ptr<AddressSearch> search_;  // of a static job
  std::unique_ptr<HostSource> source_;     // of an elastic one, as the next
  std::unique_ptr<AddressBook> address_book_;
  WorkerOutput output_;
  WorkerReporter reporter_;
  WorkWatch work_;
  boost::asio::steady_timer timer_;
  TimePoint wake_at_ = kNever;
  bool arming_ = false;
  boost::asio::steady_timer heartbeat_timer_;
  boost::asio::steady_timer orphans_timer_;
  TimePoint orphans_until_{};
  ProgressTimer progress_timer_;
  JobPause pause_;
  ActivityReport activity_;
  LastActivities last_activities_;
  const JobIdentity identity_;
  std::vector<PastWorld> worlds_;
  JobAccount account_;
  std::optional<Journal> journal_;
  JobMetrics metrics_;
  ControlServer control_;
  Sockets sockets_;
  std::optional<MetricsServer> metrics_server_;
  std::optional<PageServer> page_;
  std::deque<ControlServer::Callbacks::Answer> askers_;  // of the requests that wait in events_

  JobEnvironment environment_;  // but for what is a host's own
  Incarnation leader_ = 0;      // rank 0 of the world in force
  // The settings that each worker is started with; encoded once, whatever the number of hosts and
  // workers.
  SharedBytes program_;
  SharedBytes world_;  // in force
  std::uint64_t world_generation_ = 0;
  std::deque<Event> events_;
  bool handling_ = false;
  bool withheld_secrets_reported_ = false;
  Outcome outcome_;
};

}  // namespace hvd::driver
