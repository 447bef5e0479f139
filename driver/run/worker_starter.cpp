#include "driver/run/worker_starter.h"

#include <algorithm>
#include <utility>

#include "base/protocol/credentials.h"
#include "base/protocol/worker_link.h"
#include "base/text.h"

namespace hvd::driver {
namespace {

SharedBytes program_of(const JobSpec& spec) {
  agent_link::Program program{spec.command, spec.environment, spec.working_directory,
                              spec.host_variables};
  if (spec.elastic) {
    program.keeps_state = spec.elastic->keeps_state_in_agents;
    program.notice_command = spec.elastic->notice_command;
  }
  return share(program.encode());
}

}  // namespace

WorkerStarter::WorkerStarter(const JobContext& context, const Job& job, HostTable& hosts)
    : context_(context), job_(job), hosts_(hosts), program_(program_of(context.spec)) {
  environment_.job_id = context_.job_id();
  environment_.elastic = context_.spec.elastic.has_value();
  if (context_.spec.elastic) environment_.max_restarts = context_.spec.elastic->max_restarts;
}

bool WorkerStarter::choose_master(HostIndex host, const std::string& address) {
  environment_.size = static_cast<int>(job_.workers().size());
  return set_master(host, address);
}

// Without a free port the last one stays.
bool WorkerStarter::set_master(HostIndex host, const std::string& address) {
  environment_.master_address = address;
  const auto port = hosts_.free_port_at(host, address);
  if (port) environment_.master_port = *port;
  return port.has_value();
}

void WorkerStarter::update_master(const WorldDocument& world) {
  const WorldMember& leader = world.members.front();
  environment_.size = static_cast<int>(world.members.size());
  environment_.restarts = job_.restarts();
  if (std::exchange(leader_, leader.incarnation) == leader.incarnation) return;
  const HostIndex host = job_.workers()[job_.index_of(leader.incarnation)].host;
  set_master(host, leader.address);
}

void WorkerStarter::start(HostIndex host, const WorldMember& member) {
  const auto& session = hosts_.at(host).session;
  if (!session) return;
  if (!hosts_.at(host).found.local) report_withheld_secrets();
  session->send_program(program_);
  send_world(host);
  session->send([this, host, member, follows = world_ != nullptr] {
    return launch_frame(host, member, follows);
  });
}

std::string WorkerStarter::launch_frame(HostIndex host, const WorldMember& member,
                                        bool world_follows) const {
  const JobSpec& spec = context_.spec;
  const SocketAddress& rendezvous = hosts_.at(host).rendezvous;
  const agent_link::Ready& ready = hosts_.at(host).session->ready();

  worker_link::Welcome welcome(
      context_.job_id(), worker_credential(context_.job_key, member.worker(), member.incarnation));
  welcome.worker = member.worker();
  welcome.incarnation = member.incarnation;
  welcome.rendezvous_host = rendezvous.host;
  welcome.rendezvous_port = rendezvous.port;
  welcome.advertise_address = member.address;
  welcome.world_follows = world_follows;
  welcome.elastic = context_.spec.elastic.has_value();

  JobEnvironment environment = environment_;
  environment.rendezvous_address = rendezvous.host;
  environment.rendezvous_port = rendezvous.port;
  environment.network_interface = interface_with(ready.interfaces, member.address);

  agent_link::Launch launch;
  launch.incarnation = member.incarnation;
  launch.worker = member.worker();
  launch.environment =
      worker_environment(spec.environment, environment, member, host_environment(host, member));

  // Slots stay what they are when ranks change.
  const int part = context_.spec.elastic ? member.slot : member.local_rank;
  const int known_parts = context_.spec.elastic ? job_.slots_at(host) : member.local_size;
  const int parts = std::max(known_parts, part + 1);
  launch.binding = spec.binding;
  launch.part = static_cast<std::uint32_t>(part);
  launch.parts = static_cast<std::uint32_t>(parts);
  welcome.bound = spec.binding == Binding::cores && parts <= ready.cores;
  launch.welcome = welcome.encode();
  return launch.encode();
}

HostEnvironment WorkerStarter::host_environment(HostIndex host, const WorldMember& member) const {
  HostEnvironment environment = place_in_world(job_.world().members, member);
  environment.cores = hosts_.at(host).session->ready().cores;
  environment.workers = std::max(member.local_size, job_.hosts()[host].live);
  environment.labels = hvd::join(hosts_.at(host).labels, ",");
  return environment;
}

void WorkerStarter::report_withheld_secrets() {
  const auto& secrets = context_.spec.secrets;
  if (secrets.empty() || std::exchange(has_reported_secrets_, true)) return;
  context_.observer.on_notice(
      cat("not sent to other hosts, since they look like secrets: ", hvd::join(secrets, " "),
          " (--env NAME sends one, --env-include PATTERN several)"));
}

}  // namespace hvd::driver
