// Events: from agents, signals and timers to the job, and from the job to its parts. What the job
// decides is done in driver/run/job_actions.cpp.
#include "driver/run/job_runner.h"

#include <algorithm>
#include <csignal>
#include <unistd.h>
#include <utility>

#include "base/log.h"
#include "base/machine/child_process.h"
#include "base/printable.h"
#include "base/text.h"
#include "driver/job/heartbeats.h"
#include "driver/run/spec_options.h"

namespace hvd::driver {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

JobIdentity identity_of(const JobSpec& spec, std::string job_id) {
  return {std::move(job_id),
          ::getpid(),
          spec.command,
          spec.working_directory,
          spec.elastic.has_value(),
          std::chrono::system_clock::now(),
          spec.data_security};
}

}  // namespace

JobRunner::JobRunner(asio::io_context& io, const JobSpec& spec, Observer& observer,
                     const RaisedFileLimit& open_files, Preparation preparation, JobKeeping keeping)
    : context_{io,
               spec,
               observer,
               identity_of(spec, keeping.job.id),
               keeping.job.key,
               keeping.directory == nullptr ? 0 : keeping.job.epoch,
               keeping.directory,
               keeping.comes_from_elsewhere},
      open_files_(open_files),
      listed_hosts_(preparation.hosts),
      plan_(preparation.plan),
      orphans_(io, observer),
      server_(io, context_.job_key,
              server_options(spec, observer,
                             [this](Incarnation worker) { return find_worker(worker); })),
      start_(keeping.start ? *std::move(keeping.start)
                           : job_start(spec, context_.job_id(), preparation)),
      loop_(io, start_.make(), loop_callbacks()),
      hosts_(context_, loop_.job(), preparation),
      join_tokens_(context_.job_key, [this] { return keep_join_tokens(); }),
      agents_(context_, hosts_, join_tokens_, std::move(preparation.joined), supply_callbacks()),
      addresses_(context_, server_, loop_.job(), hosts_, address_callbacks()),
      workers_(context_, loop_.job(), hosts_),
      work_(
          loop_.job(), [&observer](std::string_view text) { observer.on_warning(text); },
          [&observer](std::string_view text) { observer.on_notice(text); }),
      report_(context_, loop_.job(), hosts_, work_),
      record_(context_, start_, std::move(keeping.events), std::move(keeping.state)),
      answers_(context_, loop_.job(), work_, record_, report_.activity(), join_tokens_,
               answers_callbacks()),
      pause_(io, pause_callbacks()),
      heartbeat_timer_(io) {}

std::optional<rendezvous::KnownWorker> JobRunner::find_worker(Incarnation incarnation) const {
  const Job& job = loop_.job();
  const std::size_t index = job.index_of(incarnation);
  if (index == job.workers().size()) return std::nullopt;
  const JobWorker& worker = job.workers()[index];
  return rendezvous::KnownWorker{worker.member.worker(), has_ended(worker.state)};
}

void JobRunner::announce() {
  Observer& observer = context_.observer;
  if (!plan_.members.empty() && !context_.spec.elastic) perform(action::PlanStands{});
  if (!plan_.oversubscription.empty()) observer.on_warning(plan_.oversubscription);
  if (context_.spec.legacy_clients) {
    observer.on_warning(
        "--legacy-clients: any process that reaches the rendezvous service can read and write the "
        "scopes of Horovod's own clients, without a signature");
  }
}

Outcome JobRunner::run(Signals& signals, RequestSignals& requests, JobAnswers::Sockets sockets) {
  signals.handle([this](int signal) { on_signal(signal); });
  requests.handle([this](int signal) { on_request(signal); });
  answers_.begin(std::move(sockets));
  if (!takeover_) record_.begin(start_);
  if (context_.spec.elastic) agents_.begin_discovery(listed_hosts_);
  const bool has_begun = loop_.job().state() != JobState::planned;
  if (takeover_ && takeover_->finish()) {
    perform(*takeover_->finish());
  } else if (has_begun) {
    for (const HostIndex host : takeover_->hosts()) agents_.expect(host);
    take_over();
  } else {
    handle(event::Begin{});
  }
  if (context_.spec.heartbeat_timeout.count() > 0) send_heartbeats(Clock::now());
  context_.io.run();
  if (makes_way_) return std::move(outcome_);
  return end(signals, requests);
}

Outcome JobRunner::end(Signals& signals, RequestSignals& requests) {
  signals.handle(nullptr);
  requests.handle(nullptr);
  // The agents and the tunnels to them end first, then the processes that they may have left.
  agents_.end_discovery();
  hosts_.end_sessions();
  agents_.end_starts();
  orphans_.kill_all();
  outcome_.journal = record_.finish();
  return std::move(outcome_);
}

// ---- steps of the job ----

JobLoop::Callbacks JobRunner::loop_callbacks() {
  JobLoop::Callbacks callbacks;
  callbacks.before_tick = [this](TimePoint now) { report_liveness(now); };
  callbacks.after_step = [this](const Event& event, const std::vector<Action>& actions,
                                TimePoint now) { after_step(event, actions, now); };
  return callbacks;
}

void JobRunner::after_step(const Event& event, const std::vector<Action>& actions, TimePoint now) {
  if (makes_way_) return;
  const bool acts = has_effect(actions);
  if (acts && context_.state != nullptr && !context_.state->is_ours()) return make_way();
  const auto wall_time = std::chrono::system_clock::now();
  record_.step(event, actions, loop_.job(), now, wall_time);
  if (acts) keep_state();
  answers_.step(event, actions, now, wall_time);
  hosts_.on_event(event);
  // The event is reported before its consequences.
  report_.on_event(event);
  work_.on_event(event);
  for (const auto& action : actions) {
    HVD_LOG(debug, "job: " << to_text(action, loop_.job().host_names()));
    if (takeover_ && takeover_->defer(action)) continue;
    std::visit([this](const auto& value) { perform(value); }, action);
  }
}

// ---- signals ----

bool JobRunner::is_suspended_by(int signal) const {
  return context_.spec.elastic && context_.spec.elastic->suspended_by.contains(signal);
}

void JobRunner::on_signal(int signal) {
  if (is_suspended_by(signal)) return handle(event::SuspendRequested{signal});
  handle(event::StopRequested{signal});
}

void JobRunner::on_request(int signal) {
  if (signal == SIGTSTP) return pause_.begin();
  if (is_suspended_by(signal)) return on_signal(signal);
  if (signal == SIGUSR1) {
    report_.activity().request();
  } else {
    context_.observer.on_notice(
        cat(signal_text(signal), " is passed on to the workers that handle it"));
  }
  hosts_.broadcast(share(agent_link::Signal{agent_link::kAllWorkers, signal}.encode()));
}

JobPause::Callbacks JobRunner::pause_callbacks() {
  JobPause::Callbacks callbacks;
  callbacks.tell = [this](bool on) {
    return hosts_.broadcast(share(agent_link::Pause{on}.encode()));
  };
  callbacks.stopping = [this] {
    const auto orphan_timeout = context_.spec.orphan_timeout;
    std::string text = "stopped, and so are the workers; fg or bg lets the job go on";
    if (hosts_.has_agent_elsewhere() && orphan_timeout.count() > 0) {
      text += cat("; the workers on other hosts are ended after ", orphan_timeout.count() / 1000,
                  " s (--orphan-timeout)");
    }
    context_.observer.on_notice(text);
  };

  callbacks.flush = [this] { context_.observer.on_pause(); };
  callbacks.resumed = [this](Duration stopped) {
    handle(event::Resumed{stopped});
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(stopped).count();
    context_.observer.on_notice(cat("the job goes on after it was stopped for ", seconds, " s"));
    // The workers are frozen until their leases are renewed.
    if (context_.spec.heartbeat_timeout.count() > 0) send_heartbeats(Clock::now());
  };
  return callbacks;
}

JobAnswers::Callbacks JobRunner::answers_callbacks() {
  return {[this](const Event& event) { handle(event); }, [this] { on_signal(SIGTERM); }};
}

// ---- heartbeats ----

void JobRunner::send_heartbeats(TimePoint now) {
  hosts_.send_heartbeats();
  report_liveness(now);
  for (const auto& found : work_.look(now)) handle(found);
  heartbeat_timer_.expires_at(now + context_.spec.heartbeat_timeout / kHeartbeatsPerTimeout);
  heartbeat_timer_.async_wait([this](error_code error) {
    if (!error) send_heartbeats(Clock::now());
  });
}

void JobRunner::report_liveness(TimePoint now) {
  const auto timeout = context_.spec.heartbeat_timeout;
  if (timeout.count() > 0) hosts_.report_liveness(now, 2 * (timeout / kHeartbeatsPerTimeout));
  if (!takeover_) return;
  // Their silence is that of the driver before.
  for (const HostIndex host : takeover_->hosts()) handle(event::Unserved{host});
}

// ---- agents ----

AgentSupply::Callbacks JobRunner::supply_callbacks() {
  return {[this](const Event& event) {
            if (const auto told = after_takeover(event)) handle(*told);
          },
          [this](HostIndex host, AgentConnection connection) {
            open_session(host, std::move(connection));
          }};
}

void JobRunner::open_session(HostIndex host, AgentConnection connection) {
  const bool takes_over = takeover_ && takeover_->looks_for(host);
  auto options = session_options(context_, host, hosts_.at(host).found, open_files_.before());
  options.hello.takes_over = takes_over;
  options.hello.rendezvous_follows = takes_over && has_to_learn_rendezvous(host);
  hosts_.open_session(host, std::move(options), session_callbacks(host), std::move(connection));
}

AgentSessionCallbacks JobRunner::session_callbacks(HostIndex host) {
  AgentSessionCallbacks callbacks;
  callbacks.on_event = [this, host](const Event& event) { on_session_event(host, event); };
  callbacks.on_output = [this, host](agent_link::Output output) {
    const auto [stream, size] = std::pair(output.stream, output.bytes.size());
    Status taken = report_.output().on_output(host, std::move(output));
    if (taken.ok()) record_.add_output(stream, size);
    return taken;
  };
  callbacks.on_output_closed = [this, host](const agent_link::OutputClosed& closed) {
    return report_.output().on_closed(host, closed);
  };
  callbacks.on_probed = [this, host](const agent_link::Probed& probed) {
    return addresses_.on_probed(host, probed);
  };
  callbacks.on_cannot_reach = [this, host](const agent_link::WorkerCannotReach& report) {
    addresses_.check(host, report.host);
  };
  callbacks.on_problem = [this, host](const agent_link::Problem& problem) {
    context_.observer.on_warning(cat("host ", hosts_.name(host), ": ", printable(problem.message)));
  };

  callbacks.on_activity = [this, host](agent_link::WorkerActivity activity) {
    report_.on_activity(host, std::move(activity), workers_.generation());
  };
  callbacks.on_work = [this, host](const agent_link::WorkReports& reports) {
    const auto entered = work_.reported(host, reports, Clock::now());
    if (const auto told = entered ? after_takeover(*entered) : std::nullopt) handle(*told);
    if (const auto saving = work_.saving(host, reports)) handle(*saving);
  };
  callbacks.on_activity_wanted = [this](const auto&) { report_.activity().request_from_worker(); };
  callbacks.on_paused = [this, host](const agent_link::Paused& paused) {
    if (paused.on) pause_.answered(host);
  };
  callbacks.on_commit_mark = [this](const agent_link::CommitMark& mark) {
    on_commit_mark(mark.commit);
  };
  callbacks.kill_orphans = [this] { orphans_.kill(); };
  return callbacks;
}

void JobRunner::on_session_event(HostIndex host, const Event& event) {
  const bool is_last = std::holds_alternative<event::AgentGone>(event) ||
                       std::holds_alternative<event::HostFailed>(event);
  if (const auto told = after_takeover(event)) handle(*told);
  if (!is_last) return;
  agents_.agent_ended(host);
  pause_.answered(host);
  if (!context_.spec.elastic) return;
  addresses_.forget(host);
  hosts_.close_session_soon(host);
}

// ---- addresses ----

AddressFinder::Callbacks JobRunner::address_callbacks() {
  return {[this](const Event& event) { on_address(event); },
          [this](const std::vector<std::string>& addresses) { on_addresses(addresses); }};
}

void JobRunner::on_addresses(const std::vector<std::string>& addresses) {
  const HostIndex first = loop_.job().workers()[0].host;
  if (workers_.choose_master(first, addresses[first])) {
    return handle(event::AddressesChosen{addresses});
  }
  handle(event::HostFailed{first, {Step::reach, "no TCP port is free there for MASTER_PORT", 1}});
}

}  // namespace hvd::driver
