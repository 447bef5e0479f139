// The shell around a job's state machine (driver/job/any_job.h): performs what it decides, and
// tells it what happens.
#include "driver/driver.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
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
#include "driver/agents/address_book.h"
#include "driver/agents/address_search.h"
#include "driver/agents/agent_session.h"
#include "driver/agents/host_source.h"
#include "driver/agents/host_starter.h"
#include "driver/agents/preparation.h"
#include "driver/job/elastic_job.h"
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

std::uint32_t milliseconds_of(std::chrono::milliseconds time) {
  return static_cast<std::uint32_t>(time.count());
}

JobOptions job_options(const JobSpec& spec, const std::string& job_id,
                       const std::set<std::string>& local) {
  JobOptions options;
  options.job_id = job_id;
  options.grace = spec.grace;
  options.start_timeout = spec.start_timeout;
  options.heartbeat_timeout = spec.heartbeat_timeout;
  options.orphan_timeout = spec.orphan_timeout;
  options.local_hosts.assign(local.begin(), local.end());
  return options;
}

std::unique_ptr<AnyJob> make_job(const JobSpec& spec, JobOptions job, const Plan& plan) {
  if (!spec.elastic) return std::make_unique<Job>(std::move(job), plan.members);
  ElasticOptions options;
  options.job = std::move(job);
  options.limits = spec.elastic->limits;
  options.processes = spec.processes;
  options.budget = spec.elastic->budget;
  options.reset_limit = spec.elastic->reset_limit;
  options.planned_reset_limit = spec.elastic->planned_reset_limit;
  options.elastic_timeout = spec.elastic->elastic_timeout;
  options.leave_grace = spec.elastic->leave_grace;
  const std::string seed = random_bytes(sizeof(options.jitter_seed));
  std::memcpy(&options.jitter_seed, seed.data(), sizeof(options.jitter_seed));
  return std::make_unique<ElasticJob>(std::move(options));
}

rendezvous::ServerOptions server_options(const JobSpec& spec,
                                         const std::vector<WorldMember>& members) {
  rendezvous::ServerOptions options;
  options.legacy_clients = spec.legacy_clients;
  if (spec.legacy_clients) options.legacy_scope_sizes = legacy_scope_sizes(members);
  return options;
}

// Whether the members of an older world have met in this scope.
bool belongs_to_older(std::string_view scope, std::uint64_t generation) {
  const std::string_view prefix = kWorldScopePrefix;
  if (!scope.starts_with(prefix)) return false;
  scope.remove_prefix(prefix.size());
  const auto number = parse_number<std::uint64_t>(scope.substr(0, scope.find('.')));
  return number && *number < generation;
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
        hosts_(std::move(preparation.hosts)),
        plan_(std::move(preparation.plan)),
        job_id_(to_hex(random_bytes(kJobIdSize))),
        server_(io_, token_, server_options(spec, plan_.members)),
        job_(make_job(spec, job_options(spec, job_id_, preparation.local), plan_)),
        starter_(std::make_unique<HostStarter>(io_, spec, std::move(preparation.joined),
                                               starter_callbacks())),
        output_(
            *job_, observer, [this](const agent_link::Credit& credit) { pay(credit); },
            [this](std::function<void()> work) { asio::post(io_, std::move(work)); }),
        news_(*job_, observer, output_),
        timer_(io_),
        heartbeat_timer_(io_),
        notices_(io_, [this] { remind(); }) {
    for (const auto& host : hosts_) {
      known_hosts_[host.name] = {host, preparation.local.count(host.name) != 0};
    }
    meet_new_hosts();
    environment_.job_id = job_id_;
    environment_.elastic = spec_.elastic.has_value();
  }

  void announce() {
    if (!spec_.elastic) observer_.on_plan(job_->world());
    if (!plan_.oversubscription.empty()) observer_.on_warning(plan_.oversubscription);
    if (spec_.legacy_clients) {
      observer_.on_warning(
          "--legacy-clients: whoever reaches the rendezvous service can read and write the scopes "
          "of Horovod's own clients, unsigned");
    }
  }

  Outcome run() {
    signals_.handle([this](int signal) { feed(event::StopRequested{signal}); });
    if (spec_.elastic) begin_elastic();
    feed(event::Begin{});
    if (spec_.heartbeat_timeout.count() > 0) beat(Clock::now());
    io_.run();
    signals_.handle(nullptr);
    // Agents, and the ways to them, before what they may have left.
    source_.reset();
    sessions_.clear();
    starter_.reset();
    if (Subreaper::any_child()) kill_orphans();
    return std::move(outcome_);
  }

 private:
  void begin_elastic() {
    const bool only_here = spec_.elastic->discovery_script.empty() &&
                           std::all_of(known_hosts_.begin(), known_hosts_.end(),
                                       [](const auto& host) { return host.second.local; });
    AddressBook::Callbacks addresses;
    addresses.send = [this](HostIndex host, const agent_link::Probe& probe) { send(host, probe); };
    addresses.on_found = [this](HostIndex host, const ArrivalChoice& choice) {
      rendezvous_[host] = choice.rendezvous;
      feed(event::AddressFound{host, choice.address});
    };
    addresses.on_trouble = [this](HostIndex host, const std::string& why) {
      feed(event::HostFailed{host, {Step::reach, why, 1}});
    };
    address_book_ = std::make_unique<AddressBook>(io_, server_, address_wishes(), only_here,
                                                  std::move(addresses));
    HostSource::Callbacks found;
    found.on_found = [this](std::vector<event::FoundHost> hosts) {
      feed(event::HostsFound{std::move(hosts)});
    };
    found.on_warning = [this](std::string_view text) { observer_.on_warning(text); };
    found.on_failed = [this](std::string message) {
      feed(event::DiscoveryFailed{std::move(message)});
    };
    source_ = std::make_unique<HostSource>(io_, *spec_.elastic, hosts_, std::move(found));
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
    if (job_->at_work()) return;
    const std::string text = cat("waiting for ", job_->waiting_for(Clock::now()));
    if (job_->preparing()) {
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
      if (const auto* const found = std::get_if<event::HostsFound>(&next)) {
        known_hosts_.clear();
        for (const auto& host : found->hosts) known_hosts_[host.host.name] = host;
      }
      const auto actions = job_->step(next, Clock::now());
      meet_new_hosts();
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

  // Those of which the job has not spoken before.
  void meet_new_hosts() {
    for (HostIndex host = host_names_.size(); host < job_->host_count(); ++host) {
      host_names_.push_back(job_->host_at(host).name);
      visited_.push_back(known_hosts_.at(host_names_.back()));
      sessions_.emplace_back();
      rendezvous_.emplace_back();
    }
  }

  void arm_timer() {
    const TimePoint deadline = job_->next_deadline();
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
    const WorldDocument& world = action.world;
    const bool effective = world.state == WorldState::effective;
    std::string document = world.to_json();
    if (spec_.elastic) tell_workers({world.generation, effective, document});
    server_.put(kWorldScope, effective ? kCurrentWorldKey : kProposedWorldKey, document);
    if (!effective) return;
    world_ = std::move(document);
    if (!spec_.elastic) return;
    server_.erase_scopes_if([generation = world.generation](std::string_view scope) {
      return belongs_to_older(scope, generation);
    });
    follow_leader(world);
    observer_.on_world(world, action.why);
  }

  void tell_workers(const agent_link::World& world) {
    const std::string frame = world.encode();
    for (HostIndex host = 0; host < sessions_.size(); ++host) {
      if (sessions_[host] && job_->host_at(host).live > 0) sessions_[host]->send(frame);
    }
  }

  // What torch's own way to meet would need.
  void follow_leader(const WorldDocument& world) {
    const WorldMember& leader = world.members.front();
    environment_.size = static_cast<int>(world.members.size());
    if (std::exchange(leader_, leader.incarnation) == leader.incarnation) return;
    const HostIndex host = job_->worker_at(job_->index_of(leader.incarnation)).host;
    environment_.master_address = leader.address;
    if (const auto port = master_port(host, leader.address)) environment_.master_port = *port;
  }

  // Free there when it was looked for.
  std::optional<std::uint16_t> master_port(HostIndex host, const std::string& address) const {
    if (!visited_[host].local) {
      const std::uint16_t port = sessions_[host] ? sessions_[host]->ready().free_port : 0;
      return port == 0 ? std::nullopt : std::optional(port);
    }
    const auto port = free_port(address);
    return port ? std::optional(*port) : std::nullopt;
  }

  void perform(const action::StartAgent& action) {
    starter_->start(action.host, visited_[action.host].host, visited_[action.host].local);
  }

  void greet(HostIndex host, AgentConnection connection) {
    AgentSessionOptions options;
    options.host = host;
    options.where = spec_.agent_path;
    options.hello.job_id = job_id_;
    options.hello.lease_ms = milliseconds_of(spec_.heartbeat_timeout * 2 / 3);
    options.hello.orphan_timeout_ms = milliseconds_of(spec_.orphan_timeout);
    // An agent that is our child has inherited what we gave ourselves.
    options.hello.open_files = visited_[host].local ? open_files_.before() : 0;
    options.hello.elastic = spec_.elastic.has_value();
    options.check.working_directory = spec_.working_directory;
    options.check.program = spec_.command.front();
    options.check.search_path = value_of(spec_.environment, "PATH");
    AgentSessionCallbacks callbacks;
    callbacks.on_event = [this, host](const Event& event) {
      feed(event);
      const bool last = std::holds_alternative<event::AgentGone>(event) ||
                        std::holds_alternative<event::HostFailed>(event);
      if (last && spec_.elastic) forget(host);
    };
    callbacks.on_output = [this, host](agent_link::Output output) {
      return output_.on_output(host, std::move(output));
    };
    callbacks.on_output_closed = [this, host](const agent_link::OutputClosed& closed) {
      return output_.on_closed(host, closed);
    };
    callbacks.on_probed = [this, host](const agent_link::Probed& probed) {
      if (search_) return search_->on_probed(host, probed);
      if (address_book_) return address_book_->on_probed(host, probed);
      return Status(Code::data_loss, "it answered a probe that it was not sent");
    };
    callbacks.on_problem = [this, host](std::string_view message) {
      observer_.on_warning(cat("host ", host_names_[host], ": ", message));
    };
    callbacks.kill_orphans = [this] { kill_orphans(); };
    sessions_[host] = std::make_unique<AgentSession>(io_, std::move(options), std::move(callbacks),
                                                     std::move(connection));
  }

  // The visit is over; others of the same host will follow. Not within the session's own call.
  void forget(HostIndex host) {
    address_book_->forget(host);
    asio::post(io_, [this, host] { sessions_[host].reset(); });
  }

  // ---- addresses ----

  AddressWishes address_wishes() const {
    return {spec_.advertise_address, spec_.network_interfaces};
  }

  HostNetwork network_of(HostIndex host) const {
    HostNetwork network;
    network.name = host_names_[host];
    network.local = visited_[host].local;
    network.advertise_address = visited_[host].host.advertise_address;
    network.interfaces = sessions_[host]->ready().interfaces;
    network.peer_address = sessions_[host]->peer_address();
    network.local_address = sessions_[host]->local_address();
    network.probe_port = sessions_[host]->ready().probe_port;
    network.probe_greeting = sessions_[host]->ready().probe_greeting;
    return network;
  }

  void perform(const action::ChooseAddresses& /*action*/) {
    std::vector<HostNetwork> networks;
    for (HostIndex host = 0; host < host_names_.size(); ++host) {
      networks.push_back(network_of(host));
    }
    search_ = std::make_unique<AddressSearch>(
        io_, server_, std::move(networks), address_wishes(),
        [this](HostIndex host, const agent_link::Probe& probe) { send(host, probe); },
        [this](const AddressChoice& choice) { on_addresses(choice); });
    search_->begin();
  }

  void perform(const action::FindAddress& action) {
    address_book_->find(action.host, network_of(action.host));
  }

  void on_addresses(const AddressChoice& choice) {
    for (const auto& [host, message] : choice.troubles) {
      feed(event::HostFailed{host, {Step::reach, message, 1}});
    }
    if (!choice.troubles.empty()) {
      feed(event::AddressesChosen{});  // nobody else is out of reach
      return;
    }
    const HostIndex first = job_->worker_at(0).host;
    environment_.size = static_cast<int>(job_->worker_count());
    environment_.master_address = choice.addresses[first];
    const auto port = master_port(first, environment_.master_address);
    if (!port) {
      feed(event::HostFailed{first, {Step::reach, "no TCP port is free there for MASTER_PORT", 1}});
      return;
    }
    environment_.master_port = *port;
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
    welcome.elastic = spec_.elastic.has_value();
    JobEnvironment environment = environment_;
    environment.rendezvous_address = rendezvous.host;
    environment.rendezvous_port = rendezvous.port;
    environment.network_interface =
        interface_with(sessions_[action.host]->ready().interfaces, member.address);
    agent_link::Launch launch;
    launch.incarnation = member.incarnation;
    launch.worker = member.worker();
    launch.command = spec_.command;
    launch.environment = worker_environment(
        spec_.environment, environment,
        member.rank < 0 ? joiner(member, visited_[action.host].host.slots) : member,
        static_cast<int>(action.host));
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
    const std::size_t index = job_->index_of(credit.incarnation);
    if (index < job_->worker_count()) send(job_->worker_at(index).host, credit);
  }

  void kill_orphans() {
    std::set<pid_t> ours;
    for (const auto& session : sessions_) {
      if (session) ours.insert(session->pid());
    }
    if (source_) ours.insert(source_->child());
    if (const std::size_t left = subreaper_.kill_orphans(ours, kOrphanLimit); left != 0) {
      observer_.on_warning(cat(left, " processes of an agent that died do not end when killed"));
    }
  }

  asio::io_context& io_;
  Signals& signals_;
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
  asio::steady_timer timer_;
  TimePoint wake_at_ = kNever;
  asio::steady_timer heartbeat_timer_;
  Notices notices_;

  JobEnvironment environment_;  // but for what is a host's own
  Incarnation leader_ = 0;      // rank 0 of the world in force
  std::string world_;           // in force
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
