#include "driver/run/worker_environment.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string_view>

#include "base/text.h"

namespace hvd::driver {
namespace {

// Sorted by name, so that the result is deterministic.
std::map<std::string, std::string, std::less<>> own_variables(const JobEnvironment& job,
                                                              const WorldMember& member,
                                                              const HostEnvironment& host) {
  const std::string rank = cat(member.rank);
  const std::string size = cat(job.size);
  const std::string local_rank = cat(member.local_rank);
  const std::string local_size = cat(member.local_size);
  const std::string cross_rank = cat(member.cross_rank);
  const std::string cross_size = cat(member.cross_size);
  const std::string port = cat(job.rendezvous_port);

  std::map<std::string, std::string, std::less<>> variables{
      {"HVD_RANK", rank},
      {"HVD_SIZE", size},
      {"HVD_LOCAL_RANK", local_rank},
      {"HVD_LOCAL_SIZE", local_size},
      {"HVD_CROSS_RANK", cross_rank},
      {"HVD_CROSS_SIZE", cross_size},
      {"HVD_HOSTNAME", member.host},
      {"HVD_WORKER", member.worker()},
      {"HVD_JOB_ID", job.job_id},
      {"HVD_RENDEZVOUS_ADDR", job.rendezvous_address},
      {"HVD_RENDEZVOUS_PORT", port},
      // Horovod's
      {"HOROVOD_HOSTNAME", member.host},
      {"HOROVOD_RANK", rank},
      {"HOROVOD_SIZE", size},
      {"HOROVOD_LOCAL_RANK", local_rank},
      {"HOROVOD_LOCAL_SIZE", local_size},
      {"HOROVOD_CROSS_RANK", cross_rank},
      {"HOROVOD_CROSS_SIZE", cross_size},
      {"HOROVOD_GLOO_RENDEZVOUS_ADDR", job.rendezvous_address},
      {"HOROVOD_GLOO_RENDEZVOUS_PORT", port},
      {"HOROVOD_CONTROLLER", "gloo"},
      {"HOROVOD_CPU_OPERATIONS", "gloo"},
      // torch's
      {"RANK", rank},
      {"WORLD_SIZE", size},
      {"LOCAL_RANK", local_rank},
      {"LOCAL_WORLD_SIZE", local_size},
      {"GROUP_RANK", cat(host.index)},
      {"GROUP_WORLD_SIZE", cat(host.count)},
      {"MASTER_ADDR", job.master_address},
      {"MASTER_PORT", cat(job.master_port)},
      // torchrun's
      {"ROLE_NAME", "default"},
      {"ROLE_RANK", rank},
      {"ROLE_WORLD_SIZE", size},
      {"TORCHELASTIC_RUN_ID", job.job_id},
      {"TORCHELASTIC_RESTART_COUNT", cat(job.restarts)},
      {"TORCHELASTIC_MAX_RESTARTS",
       cat(job.max_restarts < 0 ? std::numeric_limits<int>::max() : job.max_restarts)},
  };

  if (!host.labels.empty()) variables.emplace("HVD_HOST_LABELS", host.labels);
  if (job.elastic) variables.insert({{"HVD_ELASTIC", "1"}, {"HOROVOD_ELASTIC", "1"}});
  return variables;
}

}  // namespace

bool is_own_variable(std::string_view name) {
  JobEnvironment job;
  job.elastic = true;
  HostEnvironment host;
  host.labels = "any";
  static const auto variables = own_variables(job, {}, host);
  return variables.find(name) != variables.end();
}

std::vector<std::string> worker_environment(const std::vector<std::string>& base,
                                            const JobEnvironment& job, const WorldMember& member,
                                            const HostEnvironment& host) {
  auto variables = own_variables(job, member, host);
  for (const char* const name : {"HOROVOD_GLOO_IFACE", "NCCL_SOCKET_IFNAME"}) {
    if (!job.network_interface.empty() && !find_value(base, name)) {
      variables.emplace(name, job.network_interface);
    }
  }
  // As many threads as cores in each worker would be in each other's way.
  if (!find_value(base, "OMP_NUM_THREADS")) {
    variables.emplace("OMP_NUM_THREADS", cat(std::max(host.cores / std::max(host.workers, 1), 1)));
  }
  std::vector<std::string> result;
  result.reserve(variables.size());
  for (const auto& [name, value] : variables) result.push_back(cat(name, "=", value));
  return result;
}

HostEnvironment place_in_world(const std::vector<WorldMember>& world, const WorldMember& member) {
  if (world.empty()) return {};
  HostEnvironment place;
  place.count = world.front().cross_size;
  // Ranks are host by host, and each host has a member with the local rank 0.
  if (member.rank >= 0) {
    place.index = world[static_cast<std::size_t>(member.rank - member.local_rank)].cross_rank;
  }
  return place;
}

std::optional<std::string> find_value(const std::vector<std::string>& environment,
                                      std::string_view name) {
  for (const auto& entry : environment) {
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=') {
      return entry.substr(name.size() + 1);
    }
  }
  return std::nullopt;
}

std::string value_of(const std::vector<std::string>& environment, std::string_view name) {
  return find_value(environment, name).value_or("");
}

}  // namespace hvd::driver
