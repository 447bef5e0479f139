// The shell around driver/job/job.h: performs what the job decides, and tells it what happens.
#include "driver/driver.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <set>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/crypto.h"
#include "base/log.h"
#include "base/protocol/agent_link.h"
#include "base/protocol/worker_link.h"
#include "base/text.h"
#include "driver/agents/address_search.h"
#include "driver/agents/agent_session.h"
#include "driver/agents/host_starter.h"
#include "driver/agents/preparation.h"
#include "driver/job/job.h"
#include "driver/job/plan.h"
#include "driver/notices.h"
#include "driver/orphans.h"
#include "driver/signals.h"
#include "driver/this_machine.h"
#include "driver/worker_environment.h"
#include "driver/worker_news.h"
#include "driver/worker_output.h"
#include "rendezvous/server.h"

namespace hvd::driver {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr std::size_t kJobIdSize = 8;  // bytes; it is no secret
constexpr int kBeatsPerTimeout = 10;
constexpr std::chrono::seconds kOrphanLimit{5};

Outcome own_trouble(std::string reason) {
  Outcome outcome;
  outcome.exit_code = 1;
  outcome.reason = std::move(reason);
  return outcome;
}

class Driver {
 public:
  Driver(asio::io_context& io, Signals& signals, const MoreOpenFiles& open_files,
         const JobSpec& spec, Observer& observer, Preparation preparation)
      : io_(io),
        signals_(signals),
        open_files_(open_files),
        spec_(spec),
        observer_(observer),
        local_(std::move(preparation.local)),
        hosts_(std::move(preparation.hosts)),
        plan_(std::move(preparation.plan)),
        job_id_(to_hex(random_bytes(kJobIdSize))),
        server_(io_, token_, server_options(spec, plan_.members)),
        job_(job_options(), plan_.members),
        host_names_(job_.host_names()),
        starter_(std::make_unique<HostStarter>(io_, spec, local_, std::move(preparation.joined),
                                               starter_callbacks())),
        sessions_(host_names_.size()),
        output_(
            job_, observer, [this](const agent_link::Credit& credit) { pay(credit); },
            [this](std::function<void()> work) { asio::post(io_, std::move(work)); }),
        news_(job_, observer, output_),
        timer_(io_),
        heartbeat_timer_(io_),
        notices_(io_, [this] { remind(); }) {}

  void announce() {
    observer_.on_plan(job_.world());
    if (!plan_.oversubscription.empty()) observer_.on_warning(plan_.oversubscription);
    if (spec_.legacy_clients) {
      observer_.on_warning(
          "--legacy-clients: whoever reaches the rendezvous service can read and write the scopes "
          "of Horovod's own clients, unsigned");
    }
  }

  Outcome run() {
    signals_.handle([this](int signal) { feed(event::StopRequested{signal}); });
    feed(event::Begin{});
    if (spec_.heartbeat_timeout.count() > 0) beat(Clock::now());
    io_.run();
    signals_.handle(nullptr);
    // Agents, and the ways to them, before what they may have left.
    sessions_.clear();
    starter_.reset();
    if (Subreaper::any_child()) kill_orphans();
    return std::move(outcome_);
  }

 private:
  JobOptions job_options() const {
    JobOptions options;
    options.job_id = job_id_;
    options.grace = spec_.grace;
    options.start_timeout = spec_.start_timeout;
    options.heartbeat_timeout = spec_.heartbeat_timeout;
    options.orphan_timeout = spec_.orphan_timeout;
    options.local_hosts.assign(local_.begin(), local_.end());
    return options;
  }

  static rendezvous::ServerOptions server_options(const JobSpec& spec,
                                                  const std::vector<WorldMember>& members) {
    rendezvous::ServerOptions options;
    options.legacy_clients = spec.legacy_clients;
    if (spec.legacy_clients) options.legacy_scope_sizes = legacy_scope_sizes(members);
    return options;
  }

  HostStarterCallbacks starter_callbacks() {
    HostStarterCallbacks callbacks;
    callbacks.on_step = [this](HostIndex host, Step step) {
      feed(event::HostProgress{host, step});
    };
    callbacks.on_agent = [this](HostIndex host, AgentConnection connection) {
      greet(host, std::move(connection));
    };
    callbacks.on_trouble = [this](HostIndex host, HostTrouble trouble) {
      feed(event::HostFailed{host, std::move(trouble)});
    };
    return callbacks;
  }

  // At a steady pace: what is late is not made up for.
  void beat(TimePoint now) {
    for (const auto& session : sessions_) {
      if (session) session->beat();
    }
    heartbeat_timer_.expires_at(now + spec_.heartbeat_timeout / kBeatsPerTimeout);
    heartbeat_timer_.async_wait([this](error_code error) {
      if (!error) beat(Clock::now());
    });
  }

  void remind() {
    if (job_.state() == JobState::running || job_.state() == JobState::finished) return;
    const std::string text = cat("waiting for ", job_.waiting_for(Clock::now()));
    if (job_.preparing()) {
      observer_.on_notice(text);
    } else {
      observer_.on_progress(text);
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
      news_.tell(next);
      for (const auto& action : actions) {
        HVD_LOG(debug, "job: " << to_text(action, host_names_));
        std::visit([this](const auto& value) { perform(value); }, action);
      }
    }
    feeding_ = false;
    arm_timer();
  }

  void arm_timer() {
    const TimePoint deadline = job_.next_deadline();
    if (deadline == wake_at_) return;
    wake_at_ = deadline;
    timer_.cancel();
    if (deadline == kNever) return;
    timer_.expires_at(deadline);
    timer_.async_wait([this](error_code error) {
      if (error) return;
      wake_at_ = kNever;
      feed(event::Tick{});
    });
  }

  // ---- what the job decided ----

  void perform(const action::PublishWorld& action) {
    world_ = action.world.to_json();
    server_.put(kWorldScope, kCurrentWorldKey, world_);
  }

  void perform(const action::StartAgent& action) {
    starter_->start(action.host, slots_of(action.host));
  }

  const HostSlots& slots_of(HostIndex host) const {
    return *std::find_if(hosts_.begin(), hosts_.end(),
                         [&](const HostSlots& slots) { return slots.name == host_names_[host]; });
  }
  bool is_local(HostIndex host) const { return local_.count(host_names_[host]) != 0; }

  void greet(HostIndex host, AgentConnection connection) {
    const auto milliseconds = [](std::chrono::milliseconds time) {
      return static_cast<std::uint32_t>(time.count());
    };
    AgentSessionOptions options;
    options.host = host;
    options.where = spec_.agent_path;
    options.hello.job_id = job_id_;
    options.hello.lease_ms = milliseconds(spec_.heartbeat_timeout * 2 / 3);
    options.hello.orphan_timeout_ms = milliseconds(spec_.orphan_timeout);
    // An agent that is our child has inherited what we gave ourselves.
    options.hello.open_files = is_local(host) ? open_files_.before() : 0;
    options.check.working_directory = spec_.working_directory;
    options.check.program = spec_.command.front();
    options.check.search_path = value_of(spec_.environment, "PATH");
    AgentSessionCallbacks callbacks;
    callbacks.on_event = [this](const Event& event) { feed(event); };
    callbacks.on_output = [this, host](agent_link::Output output) {
      return output_.on_output(host, std::move(output));
    };
    callbacks.on_output_closed = [this, host](const agent_link::OutputClosed& closed) {
      return output_.on_closed(host, closed);
    };
    callbacks.on_probed = [this, host](const agent_link::Probed& probed) {
      if (!search_) return Status(Code::data_loss, "it answered a probe that it was not sent");
      return search_->on_probed(host, probed);
    };
    callbacks.on_problem = [this, host](std::string_view message) {
      observer_.on_warning(cat("host ", host_names_[host], ": ", message));
    };
    callbacks.kill_orphans = [this] { kill_orphans(); };
    sessions_[host] = std::make_unique<AgentSession>(io_, std::move(options), std::move(callbacks),
                                                     std::move(connection));
  }

  // ---- addresses ----

  void perform(const action::ChooseAddresses& /*action*/) {
    std::vector<HostNetwork> networks;
    for (HostIndex host = 0; host < host_names_.size(); ++host) {
      HostNetwork network;
      network.name = host_names_[host];
      network.local = is_local(host);
      network.advertise_address = slots_of(host).advertise_address;
      network.interfaces = sessions_[host]->ready().interfaces;
      network.peer_address = sessions_[host]->peer_address();
      network.local_address = sessions_[host]->local_address();
      network.probe_port = sessions_[host]->ready().probe_port;
      network.probe_greeting = sessions_[host]->ready().probe_greeting;
      networks.push_back(std::move(network));
    }
    search_ = std::make_unique<AddressSearch>(
        io_, server_, std::move(networks),
        AddressWishes{spec_.advertise_address, spec_.network_interfaces},
        [this](HostIndex host, const agent_link::Probe& probe) { send(host, probe); },
        [this](const AddressChoice& choice) { on_addresses(choice); });
    search_->begin();
  }

  void perform(const action::FindAddress& /*action*/) {}  // no static job asks for it

  void on_addresses(const AddressChoice& choice) {
    for (const auto& [host, message] : choice.troubles) {
      feed(event::HostFailed{host, {Step::reach, message, 1}});
    }
    if (!choice.troubles.empty()) {
      feed(event::AddressesChosen{});  // nobody else is out of reach
      return;
    }
    const HostIndex first = job_.workers().front().host;
    environment_.job_id = job_id_;
    environment_.size = static_cast<int>(job_.workers().size());
    environment_.master_address = choice.addresses[first];
    environment_.master_port = sessions_[first]->ready().free_port;
    if (is_local(first)) {
      const auto port = free_port(environment_.master_address);
      environment_.master_port = port ? *port : 0;
    }
    if (environment_.master_port == 0) {
      feed(event::HostFailed{first, {Step::reach, "no TCP port is free there for MASTER_PORT", 1}});
      return;
    }
    rendezvous_ = choice.rendezvous;
    feed(event::AddressesChosen{choice.addresses});
  }

  void perform(const action::Launch& action) {
    const WorldMember& member = action.member;
    const SocketAddress& rendezvous = rendezvous_[action.host];
    worker_link::Welcome welcome(job_id_, token_);
    welcome.worker = member.worker();
    welcome.incarnation = member.incarnation;
    welcome.rendezvous_host = rendezvous.host;
    welcome.rendezvous_port = rendezvous.port;
    welcome.advertise_address = member.address;
    welcome.world = world_;
    JobEnvironment environment = environment_;
    environment.rendezvous_address = rendezvous.host;
    environment.rendezvous_port = rendezvous.port;
    environment.network_interface =
        interface_with(sessions_[action.host]->ready().interfaces, member.address);
    agent_link::Launch launch;
    launch.incarnation = member.incarnation;
    launch.worker = member.worker();
    launch.command = spec_.command;
    launch.environment =
        worker_environment(spec_.environment, environment, member, static_cast<int>(action.host));
    launch.working_directory = spec_.working_directory;
    launch.welcome = welcome.encode();
    launch.host_variables = spec_.host_variables;
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
    if (sessions_[action.host]) {
      sessions_[action.host]->drop();
    } else {
      starter_->give_up(action.host);
      feed(event::AgentGone{action.host, "was given up on the way"});
    }
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
      failure.hosts = first.hosts;
      outcome_.failure = std::move(failure);
    }
    // Of a host that could not be brought to its end nothing was told yet.
    for (HostIndex host = 0; host < sessions_.size(); ++host) news_.host_gone(host);
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

  asio::io_context& io_;
  Signals& signals_;
  const MoreOpenFiles& open_files_;
  const JobSpec& spec_;
  Observer& observer_;
  const std::set<std::string> local_;
  const std::vector<HostSlots> hosts_;
  const Plan plan_;
  const Subreaper subreaper_;
  const Token token_ = Token::random();
  const std::string job_id_;
  rendezvous::Server server_;
  Job job_;
  const std::vector<std::string> host_names_;
  std::unique_ptr<HostStarter> starter_;
  std::vector<std::unique_ptr<AgentSession>> sessions_;  // by host
  std::unique_ptr<AddressSearch> search_;
  WorkerOutput output_;
  WorkerNews news_;
  asio::steady_timer timer_;
  TimePoint wake_at_ = kNever;
  asio::steady_timer heartbeat_timer_;
  Notices notices_;

  JobEnvironment environment_;             // but for what is a host's own
  std::vector<SocketAddress> rendezvous_;  // by host: where it reaches the service
  std::string world_;
  std::deque<Event> events_;
  bool feeding_ = false;
  Outcome outcome_;
};

}  // namespace

Outcome run_job(const JobSpec& spec, Observer& observer) {
  if (spec.command.empty()) return own_trouble("there is no program to run");
  asio::io_context io{1};
  Signals signals(io);
  const MoreOpenFiles open_files;
  auto preparation = prepare(io, signals, spec, observer);
  if (const int signal = signals.waiting(); signal != 0) {
    Outcome outcome = own_trouble(cat("interrupted by ", signal_text(signal)));
    outcome.exit_code = 128 + signal;
    return outcome;
  }
  if (!preparation) return own_trouble(preparation.status().message());
  Driver driver(io, signals, open_files, spec, observer, *std::move(preparation));
  driver.announce();
  return driver.run();
}

}  // namespace hvd::driver
