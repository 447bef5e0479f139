// Performs the job's actions.
#include <algorithm>
#include <string_view>
#include <utility>

#include "base/protocol/worker_link.h"
#include "base/text.h"
#include "driver/job_runner.h"

namespace hvd::driver {
namespace {

constexpr std::string_view kLostState = "committed state lost: ";  // worker/elastic/agreement.cpp

// Whether this scope belongs to the bootstrap of an older world.
bool belongs_to_older(std::string_view scope, std::uint64_t generation) {
  const std::string_view prefix = kWorldScopePrefix;
  if (!scope.starts_with(prefix)) return false;
  scope.remove_prefix(prefix.size());
  const auto number = parse_number<std::uint64_t>(scope.substr(0, scope.find('.')));
  return number && *number < generation;
}

}  // namespace

void JobRunner::perform(const action::PublishWorld& action) {
  const WorldDocument& world = action.world;
  const bool effective = world.state == WorldState::effective;
  agent_link::World message{world.generation, effective, world.to_json()};
  const SharedBytes frame = share(message.encode());
  if (spec_.elastic) send_world(world.generation, effective, frame);
  server_.put(kWorldScope, effective ? kCurrentWorldKey : kProposedWorldKey,
              std::move(message.document));
  if (!effective) return;

  last_activities_.clear();
  world_ = frame;
  world_generation_ = world.generation;
  if (!spec_.elastic) return;

  if (world.last) return;  // nobody forms it

  server_.erase_scopes_if([generation = world.generation](std::string_view scope) {
    return belongs_to_older(scope, generation);
  });
  update_master_endpoint(world);
  if (worlds_.size() == kMaxPastWorlds) worlds_.erase(worlds_.begin());
  worlds_.push_back(
      {world.generation, std::chrono::system_clock::now(), world.members.size(), action.why, {}});
  observer_.on_world(world, action.why);
}

void JobRunner::perform(const action::VoidCommits& action) {
  server_.put(kCommitScope, kHighWaterKey, cat(action.generation, ".0"));
}

void JobRunner::send_world(std::uint64_t generation, bool effective, const SharedBytes& world) {
  for (HostIndex host = 0; host < hosts_.size(); ++host) {
    if (hosts_[host].session && job_->hosts()[host].live > 0) {
      hosts_[host].session->send_world(generation, effective, world);
    }
  }
}

void JobRunner::update_master_endpoint(const WorldDocument& world) {
  const WorldMember& leader = world.members.front();
  environment_.size = static_cast<int>(world.members.size());
  environment_.restarts = job_->restarts();
  if (std::exchange(leader_, leader.incarnation) == leader.incarnation) return;
  const HostIndex host = job_->workers()[job_->index_of(leader.incarnation)].host;
  environment_.master_address = leader.address;
  if (const auto port = master_port(host, leader.address)) environment_.master_port = *port;
}

std::optional<std::uint16_t> JobRunner::master_port(HostIndex host,
                                                    const std::string& address) const {
  if (!hosts_[host].found.local) {
    const std::uint16_t port = hosts_[host].session ? hosts_[host].session->ready().free_port : 0;
    return port == 0 ? std::nullopt : std::optional(port);
  }
  const auto port = free_port(address, spec_.ports);
  return port ? std::optional(*port) : std::nullopt;
}

void JobRunner::perform(const action::StartAgent& action) {
  const std::string& name = hosts_[action.host].found.host.name;
  if (source_ && source_->joins(name)) {
    handle(event::HostProgress{action.host, Step::start_agent});
    if (auto agent = source_->take_agent(name)) {
      open_session(action.host, std::move(*agent));
    } else {
      handle(event::HostFailed{action.host, {Step::start_agent, "its agent is gone", 1}});
    }
    return;
  }
  starter_->start(action.host, hosts_[action.host].found.host, hosts_[action.host].found.local);
}

void JobRunner::perform(const action::PlanStands& /*action*/) {
  const WorldDocument world = job_->world();
  if (spec_.legacy_clients) server_.expect(legacy_scope_sizes(world.members));
  observer_.on_plan(world);
}

// ---- addresses ----

HostNetwork JobRunner::network_of(HostIndex host) const {
  HostNetwork network;
  network.name = hosts_[host].found.host.name;
  network.local = hosts_[host].found.local;
  network.advertise_address = hosts_[host].found.host.advertise_address;
  network.interfaces = hosts_[host].session->ready().interfaces;
  network.peer_address = hosts_[host].session->peer_address();
  network.local_address = hosts_[host].session->local_address();
  network.probe_port = hosts_[host].session->ready().probe_port;
  network.probe_greeting = hosts_[host].session->ready().probe_greeting;
  return network;
}

// Whether the listeners of a host have room in the range of ports.
Status JobRunner::check_ports(HostIndex host, int workers) const {
  if (!spec_.ports) return {};
  const std::string& error = hosts_[host].session->ready().port_error;
  if (!error.empty()) return {Code::resource_exhausted, error};

  const event::FoundHost& found = hosts_[host].found;
  const int of_hvdrun = found.local ? spec_.ports_of_hvdrun : 0;
  return driver::check_ports(*spec_.ports, found.host.name, workers, of_hvdrun);
}

void JobRunner::perform(const action::ChooseAddresses& /*action*/) {
  std::vector<HostNetwork> networks;
  bool has_ports = true;
  // Hosts without workers come last in the job's order, so the indices stay the same.
  for (HostIndex host = 0; host < hosts_.size(); ++host) {
    const int workers = static_cast<int>(job_->hosts()[host].workers.size());
    if (workers == 0) continue;
    networks.push_back(network_of(host));
    if (const Status enough = check_ports(host, workers); !enough.ok()) {
      has_ports = false;
      handle(event::HostFailed{host, {Step::reach, enough.message(), 1}});
    }
  }
  if (!has_ports) return;

  search_ = std::make_unique<AddressSearch>(
      io_, server_, std::move(networks), address_preferences(),
      [this](HostIndex host, const agent_link::Probe& probe) { send(host, probe); },
      [this](const AddressChoice& choice) { on_addresses(choice); });
  search_->begin();
}

void JobRunner::perform(const action::FindAddress& action) {
  const int slots = std::max(hosts_[action.host].found.host.slots, 1);
  if (const Status enough = check_ports(action.host, slots); !enough.ok()) {
    handle(event::HostFailed{action.host, {Step::reach, enough.message(), 1}});
    return;
  }
  address_book_->find(action.host, network_of(action.host));
}

void JobRunner::on_addresses(const AddressChoice& choice) {
  for (const auto& [host, message] : choice.errors) {
    handle(event::HostFailed{host, {Step::reach, message, 1}});
  }
  if (!choice.errors.empty()) {
    handle(event::AddressesChosen{});  // all failures were reported
    return;
  }

  const HostIndex first = job_->workers()[0].host;
  environment_.size = static_cast<int>(job_->workers().size());
  environment_.master_address = choice.addresses[first];
  const auto port = master_port(first, environment_.master_address);
  if (!port) {
    handle(event::HostFailed{first, {Step::reach, "no TCP port is free there for MASTER_PORT", 1}});
    return;
  }

  environment_.master_port = *port;
  for (HostIndex host = 0; host < choice.rendezvous.size(); ++host) {
    hosts_[host].rendezvous = choice.rendezvous[host];
  }
  handle(event::AddressesChosen{choice.addresses});
}

void JobRunner::perform(const action::Launch& action) {
  const auto& session = hosts_[action.host].session;
  if (!session) return;
  if (!hosts_[action.host].found.local) report_withheld_secrets();
  session->send_program(program_);
  if (world_) session->send_world(world_generation_, true, world_);
  session->send([this, host = action.host, member = action.member, follows = world_ != nullptr] {
    return launch_of(host, member, follows);
  });
}

std::string JobRunner::launch_of(HostIndex host, const WorldMember& member,
                                 bool world_follows) const {
  const SocketAddress& rendezvous = hosts_[host].rendezvous;
  worker_link::Welcome welcome(job_id_, token_);
  welcome.worker = member.worker();
  welcome.incarnation = member.incarnation;
  welcome.rendezvous_host = rendezvous.host;
  welcome.rendezvous_port = rendezvous.port;
  welcome.advertise_address = member.address;
  welcome.world_follows = world_follows;
  welcome.elastic = spec_.elastic.has_value();

  JobEnvironment environment = environment_;
  environment.rendezvous_address = rendezvous.host;
  environment.rendezvous_port = rendezvous.port;
  environment.network_interface =
      interface_with(hosts_[host].session->ready().interfaces, member.address);

  agent_link::Launch launch;
  launch.incarnation = member.incarnation;
  launch.worker = member.worker();
  launch.environment =
      worker_environment(spec_.environment, environment, member, host_environment(host, member));
  launch.binding = spec_.binding;
  // Slots stay what they are when ranks change.
  const int part = spec_.elastic ? member.slot : member.local_rank;
  const int parts = spec_.elastic ? job_->slots_at(host) : member.local_size;
  launch.part = static_cast<std::uint32_t>(part);
  launch.parts = static_cast<std::uint32_t>(std::max(parts, part + 1));
  welcome.bound = spec_.binding == Binding::cores &&
                  std::max(parts, part + 1) <= hosts_[host].session->ready().cores;
  launch.welcome = welcome.encode();
  return launch.encode();
}

HostEnvironment JobRunner::host_environment(HostIndex host, const WorldMember& member) const {
  HostEnvironment environment = place_in_world(job_->world().members, member);
  environment.cores = hosts_[host].session->ready().cores;
  environment.workers = std::max(member.local_size, job_->hosts()[host].live);
  environment.labels = hvd::join(hosts_[host].labels, ",");
  return environment;
}

void JobRunner::report_withheld_secrets() {
  if (spec_.secrets.empty() || std::exchange(withheld_secrets_reported_, true)) return;
  observer_.on_notice(
      cat("not sent to other hosts, since they look like secrets: ", hvd::join(spec_.secrets, " "),
          " (--env NAME sends one, --env-include PATTERN several)"));
}

void JobRunner::perform(const action::StopWorkers& action) {
  agent_link::Stop stop;
  stop.incarnation = action.incarnation;
  stop.grace_ms = static_cast<std::uint32_t>(action.grace.count());
  stop.reason = action.reason;
  send(action.host, stop);
}

void JobRunner::perform(const action::KillWorkers& action) {
  send(action.host, agent_link::Kill{action.incarnation});
  // The agent reports an exit after the worker's output, so a blocked terminal would delay it.
  output_.waive();
}

void JobRunner::perform(const action::DescribeWorker& action) {
  send(action.host, agent_link::Describe{action.incarnation});
}

void JobRunner::perform(const action::ShutDownAgent& action) {
  // Of an agent that joined by itself somebody else waits for the end.
  const int code = spec_.join ? action.exit_code : 0;
  send(action.host, agent_link::Shutdown{static_cast<std::uint8_t>(code)});
}

void JobRunner::perform(const action::DropAgent& action) {
  if (hosts_[action.host].session) {
    hosts_[action.host].session->drop();
  } else {
    starter_->give_up(action.host);
    handle(event::AgentGone{action.host, "was given up before it was connected"});
  }
}

void JobRunner::perform(const action::Say& action) {
  switch (action.to) {
    case action::Say::To::warning:
      return observer_.on_warning(action.text);
    case action::Say::To::notice:
      return observer_.on_notice(action.text);
    case action::Say::To::verbose:
      return observer_.on_progress(action.text);
  }
}

void JobRunner::perform(const action::Answer& action) {
  const auto answer = std::move(askers_.front());
  askers_.pop_front();
  answer(action.accepted, action.text);
}

// A report that belongs to an older world, and comes late, says nothing of this one.
void JobRunner::keep_last_words(HostIndex host, const agent_link::WorkerActivity& activity) {
  const std::size_t index = job_->index_of(activity.incarnation);
  if (index >= job_->workers().size()) return;
  const JobWorker& worker = job_->workers()[index];
  if (worker.host != host || worker.member.rank < 0) return;
  if (activity.generation != 0 && activity.generation != world_generation_) return;
  last_activities_.add(activity.incarnation,
                       {worker.member.rank, worker.member.host, worker.member.slot, worker.pid,
                        activity.in_flight, activity.last, activity.missing});
}

// A line on the newest world after the first one of which that is known.
std::string JobRunner::last_recovery_text() const {
  for (std::size_t i = worlds_.size(); i > 1; --i) {
    const PastWorld& world = worlds_[i - 1];
    if (!world.entered) continue;
    return cat("  the last recovery, into generation ", world.generation, ", took ",
               entry_text(*world.entered), "\n");
  }
  return {};
}

// elastic::run() had returned on all workers, and no later run has committed anything.
bool JobRunner::work_is_done() const {
  const auto mark = split(server_.get(kCommitScope, kHighWaterKey), '.');
  return mark.size() == 3 && mark[1] == "0";
}

void JobRunner::perform(const action::Finish& action) {
  outcome_.exit_code = action.exit_code;
  outcome_.reason = action.reason;
  outcome_.suspended = action.suspended;
  outcome_.summary = account_.summary(*job_, Clock::now());
  if (action.failure) {
    const JobFailure& first = *action.failure;
    Failure failure;
    failure.worker = {first.rank, first.host, first.slot, first.incarnation, first.pid};
    failure.cause = first.cause;
    if (work_is_done())
      failure.cause += "; before that, elastic::run() had returned on all workers";
    failure.stderr_tail = output_.stderr_tail(first.incarnation);
    failure.hosts = first.hosts;
    outcome_.failure = std::move(failure);
    outcome_.last_activities = last_activities_.text();
    if (!outcome_.last_activities.empty()) outcome_.last_activities += last_recovery_text();
  }

  if (action.exit_code != 0) outcome_.lost_state = output_.find_in_stderr(kLostState);
  // The workers of a host whose end was not confirmed have not been reported yet.
  for (HostIndex host = 0; host < hosts_.size(); ++host) reporter_.host_gone(host);
  if (page_) page_->end(action.exit_code, action.reason);
  if (!source_) return io_.stop();
  source_->close(static_cast<std::uint8_t>(action.exit_code), [this] { io_.stop(); });
}

}  // namespace hvd::driver
