// The I/O around a job's state machine (driver/job/job.h): performs its actions and feeds it the
// events, by way of the parts of this folder, each of which has one thing to do. Created and used
// by run_job() (driver/driver.h), on its thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/clock.h"
#include "driver/agents/preparation.h"
#include "driver/core/job_pause.h"
#include "driver/core/orphans.h"
#include "driver/core/signals.h"
#include "driver/core/this_machine.h"
#include "driver/core/timers.h"
#include "driver/journal/journal.h"
#include "driver/journal/journal_reader.h"
#include "driver/journal/state_directory.h"
#include "driver/run/address_finder.h"
#include "driver/run/agent_supply.h"
#include "driver/run/host_table.h"
#include "driver/run/job_answers.h"
#include "driver/run/job_context.h"
#include "driver/run/job_loop.h"
#include "driver/run/job_record.h"
#include "driver/run/job_report.h"
#include "driver/run/takeover.h"
#include "driver/run/worker_starter.h"
#include "driver/work/work_watch.h"
#include "rendezvous/server.h"

namespace hvd::driver {

// By what a job is known, and where it is written down.
struct JobKeeping {
  KeptJob job;
  std::optional<JobStart> start = {};         // of a job that is gone on with
  std::optional<Journal> events = {};         // for people
  std::optional<Journal> state = {};          // for the next driver
  const StateDirectory* directory = nullptr;  // of `state`; outlives the job
  bool comes_from_elsewhere = false;          // its last driver was on another machine
};

class JobRunner {
 public:
  // All references outlive this.
  JobRunner(boost::asio::io_context& io, const JobSpec& spec, Observer& observer,
            const RaisedFileLimit& open_files, Preparation preparation, JobKeeping keeping);
  JobRunner(const JobRunner&) = delete;
  JobRunner& operator=(const JobRunner&) = delete;

  // Goes through the steps of the drivers that have died; run() then goes on with the job. The
  // error names the file, and the line.
  Status relive(JournalReader& journal);
  // Reports the plan and warnings before anything is started.
  void announce();
  // Returns when no process of the job is left. To be called once.
  Outcome run(Signals& signals, RequestSignals& requests, JobAnswers::Sockets sockets);

 private:
  // For the rendezvous service: the credential of a worker ends with it.
  std::optional<rendezvous::KnownWorker> find_worker(Incarnation incarnation) const;

  // ---- events ----
  void handle(const Event& event) { loop_.handle(event); }
  JobLoop::Callbacks loop_callbacks();
  void after_step(const Event& event, const std::vector<Action>& actions, TimePoint now);
  AgentSupply::Callbacks supply_callbacks();
  AddressFinder::Callbacks address_callbacks();
  JobAnswers::Callbacks answers_callbacks();
  JobPause::Callbacks pause_callbacks();
  void open_session(HostIndex host, AgentConnection connection);
  AgentSessionCallbacks session_callbacks(HostIndex host);
  void on_session_event(HostIndex host, const Event& event);
  void on_addresses(const std::vector<std::string>& addresses);
  void on_signal(int signal);
  void on_request(int signal);
  bool is_suspended_by(int signal) const;
  // Calls itself at a steady pace. A late heartbeat does not bring the next one forward.
  void send_heartbeats(TimePoint now);
  void report_liveness(TimePoint now);
  Outcome end(Signals& signals, RequestSignals& requests);

  // ---- in place of a driver that has died: driver/run/job_takeover.cpp ----
  Status relive_steps(JournalReader& journal);
  void take_over();
  void recall(const Action& action);
  void send_worlds(HostIndex host);
  void find_agent(HostIndex host);
  void give_up_agent(HostIndex host);
  // The host's agent is here.
  void on_agent_found(HostIndex host, const event::AgentReady& event);
  // Its workers know the rendezvous service at an address that this driver has not.
  bool has_to_learn_rendezvous(HostIndex host) const;
  // The address of a host was found, or was not; of one that is looked for, that of the service.
  void on_address(const Event& event);
  void take_up_agent(HostIndex host);
  void end_search(HostIndex host);
  // The agent that was found is not the job's, or of no use to it.
  void drop_found_agent(HostIndex host, std::string why);
  // As Takeover::told(); an agent that was looked for is taken up.
  std::optional<Event> after_takeover(const Event& event);
  void on_commit_mark(const std::string& commit);
  // For the next driver, before anybody acts on a step.
  void keep_state();
  Status keep_join_tokens() const;
  // Another driver acts, so that this one does not any more: it ends, and leaves all as it is.
  void make_way();

  // ---- actions ----
  void perform(const action::PublishWorld& action);
  // No agent hears of it yet.
  std::shared_ptr<const WorldFrames> keep_world(const action::PublishWorld& action);
  WorldFrames frames_of(const WorldDocument& world) const;
  void perform(const action::StartAgent& action) { agents_.start(action.host); }
  void perform(const action::PlanStands& action);
  void perform(const action::ChooseAddresses& /*action*/) { addresses_.choose(); }
  void perform(const action::FindAddress& action) { addresses_.find(action.host); }
  void perform(const action::VoidCommits& action);
  void perform(const action::Launch& action) { workers_.start(action.host, action.member); }
  void perform(const action::StopWorkers& action);
  void perform(const action::KillWorkers& action);
  void perform(const action::DescribeWorker& action);
  void perform(const action::ShutDownAgent& action);
  void perform(const action::DropAgent& action);
  void perform(const action::Say& action);
  void perform(const action::Answer& action) { answers_.answer(action); }
  void perform(const action::Finish& action);
  bool work_is_done() const;

  const JobContext context_;
  const RaisedFileLimit& open_files_;
  const std::vector<HostSlots> listed_hosts_;  // from the command line
  const Plan plan_;
  OrphanKiller orphans_;
  rendezvous::Server server_;
  const JobStart start_;
  JobLoop loop_;
  HostTable hosts_;
  join::JoinTokens join_tokens_;
  AgentSupply agents_;
  AddressFinder addresses_;
  WorkerStarter workers_;
  WorkWatch work_;
  JobReport report_;
  JobRecord record_;
  JobAnswers answers_;
  JobPause pause_;
  boost::asio::steady_timer heartbeat_timer_;
  std::optional<Takeover> takeover_;  // of a job that is gone on with
  std::map<HostIndex, std::unique_ptr<OwnTimer>> find_limits_;
  std::set<std::string> lost_addresses_;  // of the rendezvous service of the driver before
  std::string kept_commit_;               // as StateDirectory has it
  bool makes_way_ = false;
  Outcome outcome_;
};

}  // namespace hvd::driver
