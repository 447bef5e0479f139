#include "driver/run/spec_options.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <set>

#include "base/machine/capacity.h"
#include "base/security/crypto.h"
#include "base/text.h"
#include "driver/job/heartbeats.h"
#include "driver/run/worker_environment.h"

namespace hvd::driver {
namespace {

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

}  // namespace

JobStart job_start(const JobSpec& spec, const std::string& job_id, const Preparation& preparation) {
  JobOptions job = job_options(spec, job_id, preparation.local);
  const std::vector<HostSlots>& hosts = preparation.hosts;
  const Plan& plan = preparation.plan;
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
  options.keeps_state_in_agents = spec.elastic->keeps_state_in_agents;
  const bool is_warned =
      !spec.elastic->notice_command.empty() && spec.elastic->suspended_by.contains(SIGTERM);
  options.suspends_when_all_go = spec.slurm.has_value() || is_warned;
  const std::string seed = random_bytes(sizeof(options.jitter_seed));
  std::memcpy(&options.jitter_seed, seed.data(), sizeof(options.jitter_seed));
  return {std::move(job), JobStart::Elastic{}};
}

rendezvous::ServerOptions server_options(const JobSpec& spec, Observer& observer,
                                         rendezvous::FindWorker find_worker) {
  rendezvous::ServerOptions options;
  options.find_worker = std::move(find_worker);
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

AgentSessionOptions session_options(const JobContext& context, HostIndex host,
                                    const event::FoundHost& found, std::uint64_t open_files) {
  const JobSpec& spec = context.spec;
  AgentSessionOptions options;
  options.host = host;
  options.where = spec.agent_path;
  options.hello.job_id = context.job_id();
  options.hello.host = found.host.name;
  options.hello.lease_ms = milliseconds_of(spec.heartbeat_timeout * 2 / 3);
  options.hello.orphan_timeout_ms = milliseconds_of(spec.orphan_timeout);
  // An agent that is a child of this process has inherited the limit that this process has raised
  // for itself, and restores it for the workers.
  options.hello.open_files = found.local ? open_files : 0;
  options.hello.elastic = spec.elastic.has_value();
  options.hello.grace_ms = milliseconds_of(spec.grace);
  options.hello.epoch = context.epoch;
  if (spec.state) options.hello.hold_ms = milliseconds_of(spec.state->hold);
  options.hello.joined = found.joins;
  // A static job cannot replace a silent worker, so its agents do not watch for silence.
  if (spec.elastic) options.hello.worker_silence_ms = milliseconds_of(spec.heartbeat_timeout);

  if (spec.ports) {
    options.hello.first_port = spec.ports->first;
    options.hello.last_port = spec.ports->last;
  }
  const std::string& advertised = found.host.advertise_address;
  options.hello.listen_on =
      advertised.empty() ? spec.network_interfaces : std::vector<std::string>{advertised};

  options.check.working_directory = spec.working_directory;
  options.check.program = spec.command.front();
  options.check.search_path = value_of(spec.environment, "PATH");
  options.visible_devices = find_value(spec.environment, kVisibleDevices);
  return options;
}

}  // namespace hvd::driver
