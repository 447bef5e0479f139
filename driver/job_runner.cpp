// Events, hosts and sessions, timers. The job's actions are performed in
// driver/job_runner_actions.cpp, and people's questions answered in driver/job_runner_answers.cpp.
#include "driver/job_runner.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <set>
#include <unistd.h>
#include <utility>

#include <boost/asio/post.hpp>

#include "base/log.h"
#include "base/machine/gpus.h"
#include "base/machine/own_time.h"
#include "base/printable.h"
#include "base/protocol/worker_link.h"
#include "base/text.h"
#include "driver/host_log.h"
#include "driver/job/heartbeats.h"
#include "driver/job/job.h"

namespace hvd::driver {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr std::chrono::seconds kOrphanLimit{5};
// In the loop, where leases wait to be renewed.
constexpr std::chrono::milliseconds kOrphanMoment{50};
// Hold-ups of hvdrun that are shorter than about three of these are not noticed.
constexpr std::chrono::milliseconds kPace{300};

std::uint32_t milliseconds_of(std::chrono::milliseconds time) {
  return static_cast<std::uint32_t>(time.count());
}

JobOptions job_options(const JobSpec& spec, const std::string& job_id,
                       const std::set<std::string>& local) {
  JobOptions options;
  options.job_id = job_id;
  options.pace = spec.heartbeat_timeout.count() == 0
                     ? kPace
                     : std::min(kPace, spec.heartbeat_timeout / kHeartbeatsPerTimeout);
  options.grace = spec.grace;
  options.start_timeout = spec.start_timeout;
  options.init_timeout = spec.init_timeout;
  options.heartbeat_timeout = spec.heartbeat_timeout;
  options.orphan_timeout = spec.orphan_timeout;
  options.local_hosts.assign(local.begin(), local.end());
  return options;
}

JobStart job_start(const JobSpec& spec, JobOptions job, const Plan& plan,
                   const std::vector<HostSlots>& hosts) {
  if (!spec.elastic && plan.members.empty()) {
    return {std::move(job), PlanRequest{hosts, spec.processes, spec.oversubscribe}};
  }
  if (!spec.elastic) return {std::move(job), plan.members};

  ElasticOptions& options = job.elastic;
  options.limits = spec.elastic->limits;
  options.processes = spec.processes;
  options.budget = spec.elastic->budget;
  options.reset_limit = spec.elastic->reset_limit;
  options.planned_reset_limit = spec.elastic->planned_reset_limit;
  options.max_restarts = spec.elastic->max_restarts;
  options.grow_delay = spec.elastic->grow_delay;
  options.hosts_are_fixed = spec.elastic->discovery_script.empty() && !spec.join;
  options.plan_list = options.hosts_are_fixed && !slots_are_known(hosts);
  options.oversubscribe = spec.oversubscribe;
  options.elastic_timeout = spec.elastic->elastic_timeout;
  options.leave_grace = spec.elastic->leave_grace;
  options.replaces_slow = spec.elastic->replaces_slow;
  options.suspends_when_all_go = spec.slurm.has_value();
  const std::string seed = random_bytes(sizeof(options.jitter_seed));
  std::memcpy(&options.jitter_seed, seed.data(), sizeof(options.jitter_seed));
  return {std::move(job), JobStart::Elastic{}};
}

rendezvous::ServerOptions server_options(const JobSpec& spec, Observer& observer) {
  rendezvous::ServerOptions options;
  options.ports.range = spec.ports;
  options.legacy_clients = spec.legacy_clients;
  options.on_legacy_client = [&spec, &observer](std::string_view request, std::string_view origin) {
    observer.on_warning(cat(
        "refused an unsigned request of a program that was built with Horovod (", request, " from ",
        origin, "): ",
        spec.elastic ? "elastic Horovod programs are not supported; without "
                       "--host-discovery-script, --min-np and --max-np, --legacy-clients allows it"
                     : "start the job with --legacy-clients"));
  };
  return options;
}

}  // namespace

JobRunner::JobRunner(asio::io_context& io, Signals& signals, RequestSignals& requests,
                     const RaisedFileLimit& open_files, const JobSpec& spec, Observer& observer,
                     Preparation preparation, std::string job_id, std::optional<Journal> journal,
                     Sockets sockets)
    : io_(io),
      signals_(signals),
      requests_(requests),
      open_files_(open_files),
      spec_(spec),
      observer_(observer),
      listed_hosts_(std::move(preparation.hosts)),
      plan_(std::move(preparation.plan)),
      job_id_(std::move(job_id)),
      server_(io_, token_, server_options(spec, observer)),
      start_(job_start(spec, job_options(spec, job_id_, preparation.local), plan_, listed_hosts_)),
      job_(start_.make()),
      starter_(std::make_unique<HostStarter>(io_, spec, std::move(preparation.joined),
                                             starter_callbacks())),
      output_(
          *job_, observer, [this](const agent_link::Credit& credit) { return_credit(credit); },
          [this](std::function<void()> work) { asio::post(io_, std::move(work)); }),
      reporter_(*job_, observer, output_),
      work_(
          *job_, [&observer](std::string_view text) { observer.on_warning(text); },
          [&observer](std::string_view text) { observer.on_notice(text); }),
      timer_(io_),
      heartbeat_timer_(io_),
      orphans_timer_(io_),
      progress_timer_(io_, [this] { report_waiting(); }),
      pause_(io_, pause_callbacks()),
      activity_(io_, activity_callbacks()),
      identity_{job_id_,
                ::getpid(),
                spec.command,
                spec.working_directory,
                spec.elastic.has_value(),
                std::chrono::system_clock::now()},
      journal_(std::move(journal)),
      metrics_(identity_, start_),
      control_(io_, control_callbacks()),
      sockets_(std::move(sockets)) {
  for (const auto& host : listed_hosts_) {
    known_hosts_[host.name] = {host, preparation.local.count(host.name) != 0};
  }
  register_new_hosts();
  environment_.job_id = job_id_;
  environment_.elastic = spec_.elastic.has_value();
  if (spec_.elastic) environment_.max_restarts = spec_.elastic->max_restarts;
  program_ = share(agent_link::Program{spec_.command, spec_.environment, spec_.working_directory,
                                       spec_.host_variables}
                       .encode());
}

void JobRunner::announce() {
  if (!plan_.members.empty() && !spec_.elastic) perform(action::PlanStands{});
  if (!plan_.oversubscription.empty()) observer_.on_warning(plan_.oversubscription);
  if (spec_.legacy_clients) {
    observer_.on_warning(
        "--legacy-clients: any process that reaches the rendezvous service can read and write the "
        "scopes of Horovod's own clients, without a signature");
  }
}

Outcome JobRunner::run() {
  signals_.handle([this](int signal) { on_signal(signal); });
  requests_.handle([this](int signal) { on_request(signal); });
  if (const Status open = control_.start(job_id_); !open.ok()) {
    observer_.on_progress(cat("hvdrun status cannot ask this job: ", open.message()));
  }
  serve_metrics();
  serve_page();
  if (journal_) warn_of_journal(journal_->begin(identity_, start_));
  if (spec_.elastic) begin_elastic();
  handle(event::Begin{});
  if (spec_.heartbeat_timeout.count() > 0) send_heartbeats(Clock::now());
  io_.run();

  signals_.handle(nullptr);
  requests_.handle(nullptr);
  // The agents and the tunnels to them end first, then the processes that they may have left.
  source_.reset();
  for (auto& host : hosts_) host.session.reset();
  starter_.reset();
  if (Subreaper::any_child()) warn_of_orphans(subreaper_.kill_orphans(kOrphanLimit));
  finish_journal();
  return std::move(outcome_);
}

void JobRunner::on_signal(int signal) {
  if (spec_.elastic && spec_.elastic->suspended_by.contains(signal)) {
    return handle(event::SuspendRequested{signal});
  }
  handle(event::StopRequested{signal});
}

void JobRunner::on_request(int signal) {
  if (signal == SIGTSTP) return pause_.begin();
  if (spec_.elastic && spec_.elastic->suspended_by.contains(signal)) return on_signal(signal);
  if (signal == SIGUSR1) {
    activity_.request();
  } else {
    observer_.on_notice(cat(signal_text(signal), " is passed on to the workers that handle it"));
  }
  broadcast(share(agent_link::Signal{agent_link::kAllWorkers, signal}.encode()));
}

std::set<HostIndex> JobRunner::broadcast(const SharedBytes& frame) {
  std::set<HostIndex> told;
  for (HostIndex host = 0; host < hosts_.size(); ++host) {
    if (!hosts_[host].session) continue;
    hosts_[host].session->send(frame);
    told.insert(host);
  }
  return told;
}

JobPause::Callbacks JobRunner::pause_callbacks() {
  JobPause::Callbacks callbacks;
  callbacks.tell = [this](bool on) { return broadcast(share(agent_link::Pause{on}.encode())); };
  callbacks.stopping = [this] {
    const bool others = std::any_of(hosts_.begin(), hosts_.end(), [](const auto& host) {
      return host.session && host.session->pid() < 0;
    });
    std::string text = "stopped, and so are the workers; fg or bg lets the job go on";
    if (others && spec_.orphan_timeout.count() > 0) {
      text += cat("; the workers on other hosts are ended after ",
                  spec_.orphan_timeout.count() / 1000, " s (--orphan-timeout)");
    }
    observer_.on_notice(text);
  };

  callbacks.flush = [this] { observer_.on_pause(); };
  callbacks.resumed = [this](Duration stopped) {
    handle(event::Resumed{stopped});
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(stopped).count();
    observer_.on_notice(cat("the job goes on after it was stopped for ", seconds, " s"));
    // The workers are frozen until their leases are renewed.
    if (spec_.heartbeat_timeout.count() > 0) send_heartbeats(Clock::now());
  };
  return callbacks;
}

void JobRunner::begin_elastic() {
  const bool only_here = spec_.elastic->discovery_script.empty() && !spec_.join &&
                         std::all_of(known_hosts_.begin(), known_hosts_.end(),
                                     [](const auto& host) { return host.second.local; });
  AddressBook::Callbacks addresses;
  addresses.send = [this](HostIndex host, const agent_link::Probe& probe) { send(host, probe); };
  addresses.on_found = [this](HostIndex host, const ArrivalChoice& choice) {
    hosts_[host].rendezvous = choice.rendezvous;
    handle(event::AddressFound{host, choice.address});
  };
  addresses.on_error = [this](HostIndex host, const std::string& why) {
    handle(event::HostFailed{host, {Step::reach, why, 1}});
  };
  address_book_ = std::make_unique<AddressBook>(io_, server_, address_preferences(), only_here,
                                                std::move(addresses));

  HostSource::Callbacks found;
  found.on_found = [this](std::vector<event::FoundHost> hosts) {
    handle(event::HostsFound{std::move(hosts)});
  };
  found.on_warning = [this](std::string_view text) { observer_.on_warning(text); };
  found.on_notice = [this](std::string_view text) { observer_.on_notice(text); };
  found.on_failed = [this](std::string message) {
    handle(event::DiscoveryFailed{std::move(message)});
  };
  source_ = std::make_unique<HostSource>(io_, spec_, listed_hosts_, std::move(found));
}

HostStarterCallbacks JobRunner::starter_callbacks() {
  HostStarterCallbacks callbacks;
  callbacks.on_step = [this](HostIndex host, Step step) {
    handle(event::HostProgress{host, step});
  };
  callbacks.on_warning = [this](std::string_view text) { observer_.on_warning(text); };
  callbacks.on_agent = [this](HostIndex host, AgentConnection connection) {
    open_session(host, std::move(connection));
  };
  callbacks.on_error = [this](HostIndex host, HostError error) {
    handle(event::HostFailed{host, std::move(error)});
  };
  return callbacks;
}

void JobRunner::send_heartbeats(TimePoint now) {
  for (const auto& host : hosts_) {
    if (host.session) host.session->send_heartbeat();
  }
  check_liveness(now);
  for (const auto& found : work_.look(now)) handle(found);
  heartbeat_timer_.expires_at(now + spec_.heartbeat_timeout / kHeartbeatsPerTimeout);
  heartbeat_timer_.async_wait([this](error_code error) {
    if (!error) send_heartbeats(Clock::now());
  });
}

void JobRunner::check_liveness(TimePoint now) {
  if (spec_.heartbeat_timeout.count() == 0) return;
  const Duration pace = 2 * (spec_.heartbeat_timeout / kHeartbeatsPerTimeout);
  for (HostIndex host = 0; host < hosts_.size(); ++host) {
    if (hosts_[host].session) hosts_[host].session->report_liveness(now, pace);
  }
}

void JobRunner::report_waiting() {
  if (!job_->at_work()) {
    const bool prepares = job_->preparing();
    return observer_.on_waiting({prepares ? Waiting::For::start : Waiting::For::end,
                                 [this] { return job_->waiting_for(Clock::now()); }, prepares});
  }
  std::string init = job_->init_text(Clock::now());
  if (!init.empty()) {
    // The job itself warns of it, and says more.
    return observer_.on_waiting({Waiting::For::init, [&init] { return init; }, false});
  }
  const auto transfer = work_.transfer();
  if (transfer) {
    return observer_.on_waiting({Waiting::For::state, [&] { return transfer_text(*transfer); }});
  }
  observer_.on_waiting_over();
}

void JobRunner::warn_of_journal(const Status& written) {
  if (written.ok()) return;
  const bool hangs = written.code() == Code::deadline_exceeded;
  tell_of_journal(cat("the job goes on, and its journal (--events) ",
                      hangs ? "waits for its file: " : "ends here: ", written.message()));
}

void JobRunner::tell_of_journal(const std::string& text) {
  if (spec_.journal->file.empty()) return observer_.on_progress(text);
  observer_.on_warning(text);
}

void JobRunner::finish_journal() {
  if (!journal_) return;
  warn_of_journal(journal_->flush());
  if (const auto missing = journal_->missing(); missing > 0) {
    tell_of_journal(cat(missing, missing == 1 ? " line" : " lines",
                        " of the journal (--events) are not in ", journal_->file()));
  }
  if (journal_->is_open()) outcome_.journal = journal_->file();
}

void JobRunner::record(const Event& event, const std::vector<Action>& actions, TimePoint now) {
  account_.step(event, actions, *job_, now);
  metrics_.step(event, actions, *job_, now);
  const bool is_shown = page_ && page_->wants_events() && !is_quiet(event, actions);
  if (!is_shown && !journal_) return;
  const auto wall_time = std::chrono::system_clock::now();
  if (is_shown) page_->add_event(journal_line(event, actions, job_->hosts(), now, wall_time));
  if (journal_) warn_of_journal(journal_->step(event, actions, job_->hosts(), now, wall_time));
}

void JobRunner::note(const event::WorldEntered& entered) {
  if (worlds_.empty() || worlds_.back().generation != entered.generation) return;
  worlds_.back().entered = entered;
}

void JobRunner::handle(const Event& event) {
  events_.push_back(event);
  if (std::exchange(handling_, true)) return;
  while (!events_.empty()) {
    const Event next = events_.front();
    events_.pop_front();
    if (const auto* const found = std::get_if<event::HostsFound>(&next)) {
      known_hosts_.clear();
      for (const auto& host : found->hosts) known_hosts_[host.host.name] = host;
    }

    const TimePoint now = Clock::now();
    look_at_own_time(now);  // for the threads that bring agents to other hosts
    const auto actions = job_->step(next, now);
    if (const auto* const entered = std::get_if<event::WorldEntered>(&next)) note(*entered);
    record(next, actions, now);
    register_new_hosts();
    // The event is reported before its consequences.
    if (const std::string text = host_log_text(next, *job_); !text.empty()) HVD_LOG(info, text);
    reporter_.on_event(next);
    work_.on_event(next);
    for (const auto& action : actions) {
      HVD_LOG(debug, "job: " << to_text(action, job_->host_names()));
      std::visit([this](const auto& value) { perform(value); }, action);
    }
  }
  handling_ = false;
  arm_timer_soon();
}

void JobRunner::register_new_hosts() {
  for (HostIndex host = hosts_.size(); host < job_->hosts().size(); ++host) {
    hosts_.push_back({known_hosts_.at(job_->hosts()[host].name), {}, nullptr});
  }
}

void JobRunner::arm_timer_soon() {
  if (std::exchange(arming_, true)) return;
  asio::post(io_, [this] {
    arming_ = false;
    arm_timer();
  });
}

void JobRunner::arm_timer() {
  const TimePoint deadline = job_->next_deadline();
  if (deadline == wake_at_) return;
  wake_at_ = deadline;
  timer_.cancel();
  if (deadline == kNever) return;
  timer_.expires_at(deadline);
  timer_.async_wait([this](error_code error) {
    if (error) return;
    wake_at_ = kNever;
    check_liveness(Clock::now());
    handle(event::Tick{});
  });
}

void JobRunner::open_session(HostIndex host, AgentConnection connection) {
  AgentSessionOptions options;
  options.host = host;
  options.where = spec_.agent_path;
  options.hello.job_id = job_id_;
  options.hello.host = hosts_[host].found.host.name;
  options.hello.lease_ms = milliseconds_of(spec_.heartbeat_timeout * 2 / 3);
  options.hello.orphan_timeout_ms = milliseconds_of(spec_.orphan_timeout);
  // An agent that is a child of this process has inherited the limit that this process has raised
  // for itself, and restores it for the workers.
  options.hello.open_files = hosts_[host].found.local ? open_files_.before() : 0;
  options.hello.elastic = spec_.elastic.has_value();
  options.hello.grace_ms = milliseconds_of(spec_.grace);
  // A static job cannot replace a silent worker, so its agents do not watch for silence.
  if (spec_.elastic) options.hello.worker_silence_ms = milliseconds_of(spec_.heartbeat_timeout);

  if (spec_.ports) {
    options.hello.first_port = spec_.ports->first;
    options.hello.last_port = spec_.ports->last;
  }
  const std::string& advertised = hosts_[host].found.host.advertise_address;
  options.hello.listen_on =
      advertised.empty() ? spec_.network_interfaces : std::vector<std::string>{advertised};

  options.check.working_directory = spec_.working_directory;
  options.check.program = spec_.command.front();
  options.check.search_path = value_of(spec_.environment, "PATH");
  options.visible_devices = find_value(spec_.environment, kVisibleDevices);
  hosts_[host].labels = std::move(connection.labels);
  hosts_[host].session = std::make_unique<AgentSession>(
      io_, std::move(options), session_callbacks(host), std::move(connection));
}

AgentSessionCallbacks JobRunner::session_callbacks(HostIndex host) {
  AgentSessionCallbacks callbacks;
  callbacks.on_event = [this, host](const Event& event) {
    const bool last = std::holds_alternative<event::AgentGone>(event) ||
                      std::holds_alternative<event::HostFailed>(event);
    handle(event);
    if (last && source_) source_->agent_ended(hosts_[host].found.host.name);
    if (last) pause_.answered(host);
    if (last && spec_.elastic) close_session(host);
  };

  callbacks.on_output = [this, host](agent_link::Output output) {
    const auto [stream, size] = std::pair(output.stream, output.bytes.size());
    Status taken = output_.on_output(host, std::move(output));
    if (taken.ok()) metrics_.add_output(stream, size);
    return taken;
  };
  callbacks.on_output_closed = [this, host](const agent_link::OutputClosed& closed) {
    return output_.on_closed(host, closed);
  };
  callbacks.on_probed = [this, host](const agent_link::Probed& probed) {
    if (search_) return search_->on_probed(host, probed);
    if (address_book_) return address_book_->on_probed(host, probed);
    return Status(Code::data_loss, "it answered a probe that it was not sent");
  };
  callbacks.on_cannot_reach = [this, host](const agent_link::WorkerCannotReach& report) {
    if (address_book_) address_book_->check(host, report.host);
  };
  callbacks.on_problem = [this, host](const agent_link::Problem& problem) {
    observer_.on_warning(
        cat("host ", hosts_[host].found.host.name, ": ", printable(problem.message)));
  };

  callbacks.on_activity = [this, host](agent_link::WorkerActivity activity) {
    if (activity.id == worker_link::Activity::kAtTheEnd) return keep_last_words(host, activity);
    activity_.answered(std::move(activity));
  };
  callbacks.on_work = [this, host](const agent_link::WorkReports& reports) {
    const auto entered = work_.reported(host, reports, Clock::now());
    if (entered) handle(*entered);
    if (const auto saving = work_.saving(host, reports)) handle(*saving);
  };
  callbacks.on_activity_wanted = [this](const auto&) { activity_.request_from_worker(); };
  callbacks.on_paused = [this, host](const agent_link::Paused& paused) {
    if (paused.on) pause_.answered(host);
  };
  callbacks.kill_orphans = [this] {
    orphans_until_ = Clock::now() + kOrphanLimit;
    kill_orphans(kOrphanMoment);
  };
  return callbacks;
}

void JobRunner::close_session(HostIndex host) {
  address_book_->forget(host);
  asio::post(io_, [this, host] { hosts_[host].session.reset(); });
}

void JobRunner::return_credit(const agent_link::Credit& credit) {
  const std::size_t index = job_->index_of(credit.incarnation);
  if (index < job_->workers().size()) send(job_->workers()[index].host, credit);
}

void JobRunner::kill_orphans(std::chrono::milliseconds moment) {
  const std::size_t left = subreaper_.kill_orphans(moment);
  if (left == 0) return;
  if (Clock::now() >= orphans_until_) return warn_of_orphans(left);
  orphans_timer_.expires_after(kOrphanMoment);
  orphans_timer_.async_wait([this](error_code error) {
    if (!error) kill_orphans(std::chrono::milliseconds(0));
  });
}

void JobRunner::warn_of_orphans(std::size_t left) {
  if (left == 0) return;
  observer_.on_warning(cat("could not kill ", left, " processes left by an agent that died"));
}

}  // namespace hvd::driver
