// The shell around driver/job.h: performs what the job decides, and tells it what happens.
#include "driver/driver.h"

#include <chrono>
#include <csignal>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/crypto.h"
#include "base/log.h"
#include "base/protocol/agent_link.h"
#include "base/protocol/worker_link.h"
#include "base/text.h"
#include "driver/agent_session.h"
#include "driver/job.h"
#include "driver/orphans.h"
#include "driver/plan.h"
#include "driver/this_machine.h"
#include "driver/worker_environment.h"
#include "driver/worker_output.h"
#include "rendezvous/server.h"

namespace hvd::driver {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr std::size_t kJobIdSize = 8;  // bytes; it is no secret
// A wait with a deadline that takes longer than this is told to those who want to know more.
constexpr std::chrono::seconds kReminder{5};
constexpr std::chrono::seconds kOrphanLimit{5};

Outcome own_trouble(std::string reason) {
  Outcome outcome;
  outcome.exit_code = 1;
  outcome.reason = std::move(reason);
  return outcome;
}

// How many keys each scope of Horovod's own clients gets (horovod's global, local_<host> and
// cross_<local rank>).
std::map<std::string, std::size_t> legacy_scope_sizes(const std::vector<WorldMember>& members) {
  std::map<std::string, std::size_t> sizes;
  sizes["global"] = members.size();
  for (const auto& member : members) {
    ++sizes[cat("local_", member.host)];
    ++sizes[cat("cross_", member.local_rank)];
  }
  return sizes;
}

class Driver {
 public:
  Driver(const JobSpec& spec, Observer& observer, std::vector<WorldMember> members)
      : spec_(spec),
        observer_(observer),
        job_id_(to_hex(random_bytes(kJobIdSize))),
        server_(io_, token_, server_options(spec, members)),
        job_({.job_id = job_id_, .grace = spec.grace, .start_timeout = spec.start_timeout},
             std::move(members)),
        host_names_(job_.host_names()),
        sessions_(job_.hosts().size()),
        output_(
            job_, observer, [this](const agent_link::Credit& credit) { pay(credit); },
            [this](std::function<void()> work) { asio::post(io_, std::move(work)); }),
        signals_(io_),
        timer_(io_) {}

  void announce(const Plan& plan) {
    observer_.on_plan(job_.world());
    if (!plan.oversubscription.empty()) observer_.on_warning(plan.oversubscription);
    if (spec_.legacy_clients) {
      observer_.on_warning(
          "--legacy-clients: whoever reaches the rendezvous service can read and write the scopes "
          "of Horovod's own clients, unsigned");
    }
  }

  Outcome run() {
    if (const Status started = server_.start(); !started.ok()) {
      return own_trouble(cat("the rendezvous service could not be started: ", started.message()));
    }
    if (const Status prepared = prepare_environment(); !prepared.ok()) {
      return own_trouble(prepared.message());
    }
    watch_signals();
    feed(event::Begin{});
    io_.run();
    return std::move(outcome_);
  }

 private:
  static rendezvous::ServerOptions server_options(const JobSpec& spec,
                                                  const std::vector<WorldMember>& members) {
    rendezvous::ServerOptions options;
    options.bind = {spec.bind_address, 0};
    options.legacy_clients = spec.legacy_clients;
    if (spec.legacy_clients) options.legacy_scope_sizes = legacy_scope_sizes(members);
    return options;
  }

  Status prepare_environment() {
    const SocketAddress rendezvous = server_.address();
    auto port = free_port(spec_.bind_address);
    if (!port) return port.status().with_context("choose MASTER_PORT");
    environment_ = {job_id_,
                    static_cast<int>(job_.workers().size()),
                    rendezvous.host,
                    rendezvous.port,
                    interface_of(spec_.bind_address),
                    spec_.bind_address,
                    *port};
    return {};
  }

  void watch_signals() {
    signals_.add(SIGINT);
    signals_.add(SIGTERM);
    // nohup(1) asked us to outlive the terminal.
    struct sigaction hangup {};
    ::sigaction(SIGHUP, nullptr, &hangup);
    if (hangup.sa_handler != SIG_IGN) signals_.add(SIGHUP);
    asio::co_spawn(io_, take_signals(), asio::detached);
  }

  asio::awaitable<void> take_signals() {
    for (;;) {
      error_code error;
      const int signal =
          co_await signals_.async_wait(asio::redirect_error(asio::use_awaitable, error));
      if (error) co_return;
      feed(event::StopRequested{signal});
    }
  }

  // Events that come up while one is being handled wait for their turn.
  void feed(const Event& event) {
    events_.push_back(event);
    if (std::exchange(feeding_, true)) return;
    while (!events_.empty()) {
      const Event next = events_.front();
      events_.pop_front();
      const auto actions = job_.step(next, Clock::now());
      // What was seen is told before what follows from it.
      std::visit([this](const auto& value) { tell(value); }, next);
      for (const auto& action : actions) {
        HVD_LOG(debug, "job: " << to_text(action, host_names_));
        std::visit([this](const auto& value) { perform(value); }, action);
      }
    }
    feeding_ = false;
    arm_timer();
  }

  void arm_timer() {
    if (job_.state() == JobState::finished) return;
    const TimePoint deadline = job_.next_deadline();
    if (deadline == kNever) {
      wake_at_ = kNever;
      timer_.cancel();
      return;
    }
    const TimePoint wake_at = std::min(deadline, Clock::now() + kReminder);
    if (wake_at_ <= wake_at && wake_at_ > Clock::now()) return;  // it will look again then
    wake_at_ = wake_at;
    timer_.expires_at(wake_at);
    timer_.async_wait([this](error_code error) {
      if (error) return;
      wake_at_ = kNever;
      if (job_.next_deadline() > Clock::now() && job_.next_deadline() != kNever) {
        observer_.on_progress(cat("waiting for ", job_.waiting_for(Clock::now())));
      }
      feed(event::Tick{});
    });
  }

  // ---- what the observer is told of events ----

  template <typename Other>
  void tell(const Other& /*event*/) {}
  void tell(const event::Launched& event) {
    const std::size_t index = job_.index_of(event.incarnation);
    if (index == job_.workers().size()) return;
    const JobWorker& worker = job_.workers()[index];
    // Only if the job took it for true, and not for the second time.
    if (worker.host == event.host && worker.pid == event.pid && worker.pid != 0 &&
        started_.insert(index).second) {
      observer_.on_started(view_of(worker));
    }
  }
  void tell(const event::Exited& event) {
    const std::size_t index = job_.index_of(event.incarnation);
    if (index == job_.workers().size() || job_.workers()[index].host != event.host ||
        job_.workers()[index].state != WorkerState::exited) {
      return;
    }
    tell_exited(index, exit_text(event.exit_code, event.signal_number, event.core_dumped));
  }
  void tell(const event::AgentGone& event) { tell_host_gone(event.host); }

  void tell_host_gone(HostIndex host) {
    for (const std::size_t index : job_.hosts()[host].workers) {
      output_.close_all(index);
      tell_exited(index, "ended with its agent");
    }
  }
  void tell_exited(std::size_t index, std::string_view how) {
    if (started_.count(index) == 0 || !ended_.insert(index).second) return;
    observer_.on_exited(view_of(job_.workers()[index]), how);
  }

  // ---- what the job decided ----

  void perform(const action::PublishWorld& action) {
    world_ = action.world.to_json();
    server_.put(kWorldScope, kCurrentWorldKey, world_);
  }

  void perform(const action::StartAgent& action) {
    const HostIndex host = action.host;
    AgentSessionCallbacks callbacks;
    callbacks.on_event = [this](const Event& event) { feed(event); };
    callbacks.on_output = [this, host](agent_link::Output output) {
      return output_.on_output(host, std::move(output));
    };
    callbacks.on_output_closed = [this, host](const agent_link::OutputClosed& closed) {
      return output_.on_closed(host, closed);
    };
    callbacks.on_problem = [this, host](std::string_view message) {
      observer_.on_warning(cat("host ", host_names_[host], ": ", message));
    };
    callbacks.kill_orphans = [this] { kill_orphans(); };
    auto session =
        AgentSession::start(io_, {host, spec_.agent_path, job_id_}, std::move(callbacks));
    if (session) {
      sessions_[host] = *std::move(session);
    } else {
      feed(event::AgentGone{host, cat("could not be started: ", session.status().message())});
    }
  }

  void perform(const action::Launch& action) {
    const WorldMember& member = action.member;
    worker_link::Welcome welcome(job_id_, token_);
    welcome.worker = member.worker();
    welcome.incarnation = member.incarnation;
    welcome.rendezvous_host = environment_.rendezvous_address;
    welcome.rendezvous_port = environment_.rendezvous_port;
    welcome.advertise_address = member.address;
    welcome.world = world_;
    agent_link::Launch launch;
    launch.incarnation = member.incarnation;
    launch.worker = member.worker();
    launch.command = spec_.command;
    launch.environment =
        worker_environment(spec_.environment, environment_, member, static_cast<int>(action.host));
    launch.working_directory = spec_.working_directory;
    launch.welcome = welcome.encode();
    send(action.host, launch);
  }

  void perform(const action::StopWorkers& action) {
    agent_link::Stop stop;
    stop.incarnation = action.incarnation;
    stop.grace_ms = static_cast<std::uint32_t>(action.grace.count());
    stop.reason = action.reason;
    send(action.host, stop);
  }
  void perform(const action::KillWorkers& action) {
    send(action.host, agent_link::Kill{action.incarnation});
    // An exit is reported behind the worker's output, and must not wait for a terminal that stands
    // still.
    output_.forgive();
  }
  void perform(const action::ShutDownAgent& action) { send(action.host, agent_link::Shutdown{}); }
  void perform(const action::DropAgent& action) {
    if (sessions_[action.host]) sessions_[action.host]->drop();
  }
  void perform(const action::Say& action) {
    if (action.warning) {
      observer_.on_warning(action.text);
    } else {
      observer_.on_progress(action.text);
    }
  }

  void perform(const action::Finish& action) {
    outcome_.exit_code = action.exit_code;
    outcome_.reason = action.reason;
    if (action.failure) {
      const JobFailure& first = *action.failure;
      Failure failure;
      failure.worker = {first.rank, first.host, first.slot, first.incarnation, first.pid};
      failure.cause = first.cause;
      failure.stderr_tail = output_.stderr_tail(first.incarnation);
      outcome_.failure = std::move(failure);
    }
    // An agent that left well may have left a process that was just about to end.
    if (Subreaper::any_child()) kill_orphans();
    // Of a host that could not be brought to its end nothing was told yet.
    for (HostIndex host = 0; host < sessions_.size(); ++host) tell_host_gone(host);
    io_.stop();
  }

  template <typename Message>
  void send(HostIndex host, const Message& message) {
    if (sessions_[host]) sessions_[host]->send(message.encode());
  }

  void pay(const agent_link::Credit& credit) {
    const std::size_t index = job_.index_of(credit.incarnation);
    if (index < job_.workers().size()) send(job_.workers()[index].host, credit);
  }

  void kill_orphans() {
    std::set<pid_t> agents;
    for (const auto& session : sessions_) {
      if (session) agents.insert(session->pid());
    }
    if (const std::size_t left = subreaper_.kill_orphans(agents, kOrphanLimit); left != 0) {
      observer_.on_warning(cat(left, " processes of an agent that died do not end when killed"));
    }
  }

  const JobSpec& spec_;
  Observer& observer_;
  Subreaper subreaper_;
  asio::io_context io_{1};
  const Token token_ = Token::random();
  const std::string job_id_;
  rendezvous::Server server_;
  Job job_;
  const std::vector<std::string> host_names_;
  std::vector<std::unique_ptr<AgentSession>> sessions_;
  WorkerOutput output_;
  asio::signal_set signals_;
  asio::steady_timer timer_;
  TimePoint wake_at_ = kNever;

  JobEnvironment environment_;
  std::string world_;
  std::deque<Event> events_;
  bool feeding_ = false;
  std::set<std::size_t> started_;  // workers that the observer was told of
  std::set<std::size_t> ended_;
  Outcome outcome_;
};

}  // namespace

Outcome run_job(const JobSpec& spec, Observer& observer) {
  if (spec.command.empty()) return own_trouble("there is no program to run");
  auto plan = plan_static(spec.hosts, spec.processes, spec.oversubscribe);
  if (!plan) return own_trouble(plan.status().message());
  std::set<std::string> checked;
  for (auto& member : plan->members) {
    member.address = spec.bind_address;
    if (!checked.insert(member.host).second) continue;
    if (const Status local = check_is_this_machine(member.host); !local.ok()) {
      return own_trouble(local.message());
    }
  }
  Driver driver(spec, observer, plan->members);
  driver.announce(*plan);
  return driver.run();
}

}  // namespace hvd::driver
