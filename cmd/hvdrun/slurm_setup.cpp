#include "cmd/hvdrun/slurm_setup.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <netdb.h>
#include <sys/socket.h>

#include <boost/asio/io_context.hpp>

#include "base/descriptors.h"
#include "base/printable.h"
#include "base/security/munge.h"
#include "base/socket.h"
#include "base/text.h"
#include "cmd/hvdrun/arguments.h"
#include "cmd/hvdrun/elastic_setup.h"
#include "cmd/hvdrun/settings.h"
#include "discovery/script.h"
#include "rendezvous/access.h"

namespace hvd::cli {
namespace {

// These would change what srun is asked for, or tell an agent that it is a task of another step.
constexpr std::array<const char*, 6> kLauncherVariables{"SLURM_*",  "SRUN_*", "SBATCH_*",
                                                        "SALLOC_*", "PMI_*",  "PMIX_*"};
constexpr std::array<std::string_view, 2> kKeptVariables{"SLURM_CONF", "SLURM_CLUSTERS"};
constexpr std::size_t kMaxSlurmAnswer = std::size_t{16} << 20;

discovery::VariableLookup lookup_in(const std::vector<std::string>& environment) {
  return [&environment](std::string_view name) -> std::optional<std::string> {
    for (const auto& entry : environment) {
      if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=') {
        return entry.substr(name.size() + 1);
      }
    }
    return std::nullopt;
  };
}

// The output of a command of Slurm, which waits for Slurm's controller. The error has its words.
Result<std::string> answer_of(const std::vector<std::string>& command,
                              std::chrono::milliseconds timeout) {
  std::vector<std::string> words;
  for (const auto& word : command) words.push_back(shell_quote(word));
  const std::string line = join(words, " ");

  boost::asio::io_context io;
  discovery::Script script(io,
                           {.command = line, .timeout = timeout, .max_output = kMaxSlurmAnswer});
  discovery::ScriptEnd end;
  script.run([&end](discovery::ScriptEnd ended) { end = std::move(ended); });
  io.run();
  if (end.error.empty()) return std::move(end.output);
  const std::string said = printable(trim(end.standard_error));
  return Status(Code::unavailable, cat(line, " ", end.error, said.empty() ? "" : ": ", said));
}

// The address from which this machine would speak with another one, and that one's own. Nothing is
// sent.
struct Path {
  std::string from;
  std::string to;
};
Result<Path> path_to(const std::string& node) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  if (const int error = ::getaddrinfo(node.c_str(), "1", &hints, &list); error != 0) {
    return Status(Code::unavailable, cat("resolve ", node, ": ", ::gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(list, ::freeaddrinfo);

  Status failure(Code::unavailable, cat("there is no way to ", node));
  for (const addrinfo* address = list; address != nullptr; address = address->ai_next) {
    const UniqueFd fd(::socket(address->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!fd || ::connect(fd.get(), address->ai_addr, address->ai_addrlen) != 0) {
      failure = Status::from_errno(cat("find the way to ", node), errno);
      continue;
    }
    auto from = local_address(fd.get());
    auto to = peer_address(fd.get());
    if (from.ok() && to.ok()) return Path{from->host, to->host};
  }
  return failure;
}

// The address of this machine that the nodes reach: that from which it would speak with the first
// of them that is another machine.
Result<std::string> address_for_nodes(const std::vector<discovery::Host>& nodes,
                                      std::chrono::milliseconds timeout) {
  std::vector<std::string> names;
  for (const auto& node : nodes) names.push_back(node.name);
  const auto answer =
      answer_of({"scontrol", "--oneliner", "show", "node", join(names, ",")}, timeout);
  const std::string hint =
      "; --advertise-address names the address at which the nodes reach hvdrun";
  if (!answer.ok()) return Status(answer.status().code(), answer.status().message() + hint);

  std::string own;
  Status failure(Code::unavailable, "scontrol show node names no address of a node");
  for (const auto& line : split(*answer, '\n')) {
    const std::string address = discovery::scontrol_value(split(line, ' '), "NodeAddr");
    if (address.empty()) continue;
    const auto path = path_to(address);
    if (!path.ok()) {
      failure = path.status();
    } else if (path->from != path->to) {
      return path->from;
    } else if (own.empty()) {
      own = path->from;
    }
  }
  if (!own.empty()) return own;
  return Status(failure.code(), failure.message() + hint);
}

// Where MUNGE listens, if Slurm's configuration says that it is not the usual place.
std::string configured_munge_socket(std::chrono::milliseconds timeout) {
  const auto answer = answer_of({"scontrol", "show", "config"}, timeout);
  if (!answer.ok()) return {};
  for (const auto& line : split(*answer, '\n')) {
    if (!line.starts_with("AuthInfo")) continue;
    for (const auto& option : split(trim(line.substr(line.find('=') + 1)), ',')) {
      if (option.starts_with("socket=")) return option.substr(std::string_view("socket=").size());
    }
  }
  return {};
}

// The socket of a MUNGE that seals; empty: the usual one.
Result<std::string> working_munge_socket(std::chrono::milliseconds timeout) {
  if (seal_with_munge("", "").ok()) return std::string();
  const std::string socket = configured_munge_socket(timeout);
  const auto sealed = seal_with_munge("", socket);
  if (sealed.ok()) return socket;
  return Status(
      sealed.status().code(),
      cat("cannot hand the agents on the nodes the secret of the job: ", sealed.status().message(),
          "; --token-file FILE hands it to them without MUNGE, in a file that all nodes "
          "see"));
}

std::vector<std::string> environment_of_srun(const std::vector<std::string>& own,
                                             const driver::JobSpec& spec) {
  const auto is_in = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  std::vector<std::string> result;
  for (const auto& entry : own) {
    const std::string name = entry.substr(0, entry.find('='));
    const bool is_kept =
        std::find(kKeptVariables.begin(), kKeptVariables.end(), name) != kKeptVariables.end();
    const bool is_withheld = is_in(spec.secrets, name) || is_in(spec.unnamed, name);
    if (is_kept || !(matches(name, kLauncherVariables) || is_withheld)) result.push_back(entry);
  }
  return result;
}

// Slurm's current record of the job.
Result<discovery::SlurmJob> ask_for_job(const std::string& id, std::chrono::milliseconds timeout) {
  const auto answer = answer_of({"scontrol", "--details", "show", "job", id}, timeout);
  if (!answer.ok()) return answer.status();
  return discovery::parse_slurm_job(*answer, id);
}

Result<discovery::SlurmAllocation> current_allocation(const discovery::VariableLookup& lookup,
                                                      std::chrono::milliseconds timeout) {
  const auto id = discovery::slurm_job_id(lookup);
  if (!id.ok()) return id.status();
  auto job = ask_for_job(*id, timeout);
  if (!job.ok()) return job.status();
  return discovery::slurm_allocation(lookup, *std::move(job));
}

Result<std::string> own_path() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) return self.string();
  return Status::from_errno("find hvdrun itself by /proc/self/exe", error.value());
}

}  // namespace

Result<std::optional<discovery::SlurmAllocation>> slurm_hosts(
    const Values& values, const std::vector<std::string>& environment) {
  const SettingsReader settings(values);
  const std::string from = settings.text("hosts-from");
  const auto lookup = lookup_in(environment);
  const bool names_hosts = settings.has("hosts") || settings.has("hostfile") ||
                           settings.has("host-discovery-script") || settings.has("join-bind");
  const bool is_chosen = from == "slurm" || (from == "auto" && !names_hosts &&
                                             discovery::is_in_slurm_allocation(lookup));
  if (!is_chosen) return std::optional<discovery::SlurmAllocation>();
  if (settings.has("host-discovery-script")) {
    return invalid(cat(settings.shown("hosts-from"), " and ",
                       settings.name("host-discovery-script"),
                       ": both say which hosts there are; give one of them"));
  }

  if (settings.has("join-bind") && !is_elastic(values)) {
    return invalid(cat(settings.shown("hosts-from"), " and ", settings.name("join-bind"),
                       ": in a job that is not elastic agents are started by srun or join by "
                       "themselves, not both; --min-np makes it elastic"));
  }

  auto allocation = current_allocation(lookup, settings.seconds("start-timeout"));
  if (!allocation.ok()) {
    return allocation.status().with_context(from == "slurm" ? settings.shown("hosts-from")
                                                            : "Slurm");
  }
  if (const int slots = settings.integer("slots-per-host"); slots > 0) {
    for (auto& node : allocation->nodes) node.slots = slots;
    allocation->slots_of_newcomer = slots;
  }
  return std::optional(*std::move(allocation));
}

Result<std::string> slurm_discovery_script(const Values& values, int least) {
  const auto self = own_path();
  if (!self.ok()) return self.status();
  const int slots = SettingsReader(values).integer("slots-per-host");
  return cat(shell_quote(*self), " --print-slurm-hosts --min-np ", least,
             slots > 0 ? cat(" --slots-per-host ", slots) : "");
}

Result<std::string> current_slurm_hosts(const Values& values,
                                        const std::vector<std::string>& environment) {
  const auto allocation = slurm_hosts(values, environment);
  if (!allocation.ok()) return allocation.status();
  if (!allocation->has_value()) {
    return invalid("--print-slurm-hosts: this is not an allocation of Slurm");
  }
  const discovery::SlurmJob& job = (*allocation)->job;
  if (job.nodes.empty()) {
    return Status(Code::unavailable, cat("Slurm names no node of job ", job.id));
  }
  const SettingsReader settings(values);
  const auto states =
      answer_of({"sinfo", "--noheader", "--Node", cat("--nodes=", job.nodes), "--format=%N %T"},
                settings.seconds("start-timeout"));
  if (!states.ok()) return states.status();
  const auto hosts = discovery::slurm_nodes(**allocation, *states, settings.integer("min-np"));
  if (!hosts.ok()) return hosts.status();
  return discovery::host_lines(*hosts);
}

Result<driver::SlurmSpec> slurm_spec(const discovery::SlurmAllocation& allocation,
                                     const driver::JobSpec& spec,
                                     const std::optional<std::string>& token_file,
                                     const std::vector<std::string>& environment) {
  const auto path = own_path();
  if (!path.ok()) return path.status();
  std::string address = spec.advertise_address;
  if (address.empty()) {
    auto found = address_for_nodes(allocation.nodes, spec.start_timeout);
    if (!found.ok()) return found.status().with_context("Slurm");
    address = std::move(*found);
  }

  driver::SlurmSpec slurm{.job_id = allocation.job.id,
                          .hvdrun_path = *path,
                          .environment = environment_of_srun(environment, spec),
                          .gpus = {},
                          .bind = {address, 0},
                          .ports = {spec.ports},
                          .token = Token::random(),
                          .token_file = {},
                          .munge_socket = {}};
  for (const auto& [node, resources] : allocation.job.resources) {
    std::string gpus = discovery::gpus_text(resources);
    if (!gpus.empty()) slurm.gpus[node] = std::move(gpus);
  }
  if (token_file) {
    const auto token = rendezvous::load_or_create_token(*token_file);
    if (!token.ok()) return token.status();
    slurm.token = *token;
    slurm.token_file = std::filesystem::absolute(*token_file).string();
    return slurm;
  }
  auto socket = working_munge_socket(spec.start_timeout);
  if (!socket.ok()) return socket.status();
  slurm.munge_socket = std::move(*socket);
  return slurm;
}

Status check_requeue(const discovery::SlurmJob& job) {
  if (!job.is_batch) {
    return invalid(cat("--requeue: Slurm runs only batch scripts again, and its job ", job.id,
                       " is not one: it has been started by salloc or srun"));
  }
  if (!job.may_be_requeued) {
    return invalid(cat("--requeue: Slurm does not run its job ", job.id,
                       " again: give sbatch the flag --requeue, too"));
  }
  return {};
}

Result<bool> requeue_unless_cancelled(const std::string& job_id,
                                      std::chrono::milliseconds timeout) {
  const auto job = ask_for_job(job_id, timeout);
  if (!job.ok()) return job.status();
  if (discovery::is_cancelled(*job)) return false;
  if (job->is_requeued) return true;
  HVD_RETURN_IF_ERROR(answer_of({"scontrol", "requeue", job->task_id}, timeout).status());
  return true;
}

}  // namespace hvd::cli
